import { until } from '@vmux/testing';
import { cli } from '../../apps/cli/test/cli';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { PreviewClient } from '../support/preview-client';
import { TerminalClient } from '../support/terminal-client';

const PATIENCE = { timeoutMs: 90_000, everyMs: 100 };
const EVERY_MS = 10_000;

describeOnStack()('a session nobody uses', (stack) => {
  let stored: ClientSession;
  beforeAll(async () => {
    // Grows old while the others are looked at.
    stored = await stack.create({ policy: { checkpointEveryMs: EVERY_MS } });
  }, 120_000);

  const idleAfter = (idleTimeoutMs: number, more: object = {}) =>
    stack.create({ policy: { idleTimeoutMs, ...more } });
  const causeOf = async (session: Awaited<ReturnType<typeof idleAfter>>, type: string) =>
    (await session.events()).find((event) => event.type === type)?.data.cause;

  it('is suspended after its idle timeout, and not while a command runs in it', async () => {
    const [quiet, busy] = await Promise.all([idleAfter(1_000), idleAfter(1_000)]);
    const exec = await busy.start('while [ ! -e /tmp/enough ]; do sleep 0.05; done');
    await quiet.becomes('suspended');
    expect(await causeOf(quiet, 'SuspendRequested')).toBe('idle');
    expect((await busy.info()).status).toBe('running');
    await busy.run('touch /tmp/enough');
    await busy.ended(exec);
    await busy.becomes('suspended');
    expect(await quiet.run('echo hello')).toBe('hello\n');
  }, 120_000);

  it('is not idle while its processes use the processor, whoever started them', async () => {
    const [working, waiting] = await Promise.all([idleAfter(16_000), idleAfter(16_000)]);
    await working.start('while :; do :; done', { keepsAwake: false });
    await waiting.start('sleep 1000', { keepsAwake: false });
    await until(async () => (await waiting.info()).status === 'suspended', PATIENCE);
    expect(await working.types()).toContain('ActivityObserved');
    expect((await working.info()).status).toBe('running');
  }, 180_000);

  it('is not idle while somebody types, gives it input, or looks at an app of its', async () => {
    const [typed, fed, visited, left] = await Promise.all([1, 2, 3, 4].map(() => idleAfter(6_000)));
    if (!typed || !fed || !visited || !left) throw new Error('not created');
    const { json: shell } = await stack.api.post(`${typed.path}/shell`, {});
    const attach = `${typed.path}/execs/${shell.id}/attach`;
    const terminal = await TerminalClient.open(stack.api.url, attach, { key: stack.api.key });
    const cat = await fed.start('cat > /dev/null', { stdin: true, keepsAwake: false });
    const serve = 'exec python3 -m http.server --bind 127.0.0.1 8000';
    await visited.start(serve, { keepsAwake: false });
    const { token } = (await stack.api.post(`${visited.path}/ports/8000/token`, {})).json;
    const visitor = new PreviewClient(stack.api.url, visited.id, 8000, token);
    await left.run('true');
    for (let goesOn = true; goesOn; goesOn = (await left.info()).status !== 'suspended') {
      terminal.type(' ');
      await stack.api.call('POST', `${fed.path}/execs/${cat}/stdin`, { body: Buffer.from('x') });
      await visitor.get('/');
      await new Promise((done) => setTimeout(done, 300));
    }
    for (const session of [typed, fed, visited]) {
      expect((await session.info()).status).toBe('running');
      const types = await session.types();
      expect(types).toContain('ActivityObserved');
      expect(types).not.toContain('SuspendRequested');
    }
    terminal.close();
    for (const session of [typed, fed, visited]) await session.becomes('suspended');
  }, 180_000);

  it('is kept for as long as the command line says, and not longer than a week', async () => {
    const policy = ['--idle-timeout', '1s', '--keep'];
    const ran = await cli(['run', '--name', 'kept', ...policy, '1h', '--', 'true'], stack.env);
    expect(ran).toMatchObject({ code: 0 });
    const { json } = await stack.api.get('/v1/sessions?name=kept');
    const kept = stack.session(json.sessions[0].id);
    const left = await idleAfter(1_000);
    await left.becomes('suspended');
    expect(await kept.info()).toMatchObject({
      status: 'running',
      spec: { policy: { idleTimeoutMs: 1_000, keepMs: 3_600_000 } },
    });
    const refused = await cli(['run', '--keep', '169h', '--', 'true'], stack.env);
    expect(refused.code).not.toBe(0);
  }, 120_000);

  it('is kept for as long as was asked, and its deadlines survive a restart of what keeps them', async () => {
    const [kept, left] = await Promise.all([
      idleAfter(1_000, { keepMs: 3_600_000 }),
      idleAfter(8_000),
    ]);
    process.kill(stack.pidOf('session-service'), 'SIGKILL');
    await until(async () => (await left.info()).status === 'suspended', PATIENCE);
    expect((await kept.info()).status).toBe('running');
    expect(await kept.types()).not.toContain('SuspendRequested');
  }, 180_000);

  it('ends when its time is over, after a warning', async () => {
    const session = await stack.create({ policy: { maxRuntimeMs: 4_000 } });
    await until(async () => (await session.info()).status === 'stopped', PATIENCE);
    const types = await session.types();
    const cause = await causeOf(session, 'StopRequested');
    expect([types.includes('LimitExceeded'), cause]).toEqual([true, 'max_runtime']);
    expect(types.indexOf('LimitExceeded')).toBeLessThan(types.indexOf('StopRequested'));
  }, 120_000);

  it('is stored by itself every so often, where that was asked for', async () => {
    const requests = await until(async () => {
      const events = await stored.events();
      const asked = events.filter(({ type }) => type === 'CheckpointRequested');
      const taken = events.filter(({ type }) => type === 'CheckpointTaken');
      return asked.length > 1 && taken.length > 1 && asked.map(({ data }) => data);
    }, PATIENCE);
    for (const { cause } of requests) expect(cause).toBe('policy');
    const times = requests.map(({ at }) => Number(at));
    for (const [n, at] of times.slice(1).entries())
      expect(at - (times[n] ?? 0)).toBeGreaterThanOrEqual(EVERY_MS);
    expect((await stored.info()).status).toBe('running');
  }, 120_000);
});
