import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '@vmux/testing';
import { cli } from '../../apps/cli/test/cli';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { PreviewClient } from '../support/preview-client';
import { firstProcessOf } from '../support/sandboxes';
import { TerminalClient } from '../support/terminal-client';

const PATIENCE = { timeoutMs: 90_000, everyMs: 50 };
const SERVE = 'exec python3 -m http.server --bind 127.0.0.1 8000';

describeOnStack()('a session that lost its sandbox', (stack) => {
  const kill = (session: ClientSession) =>
    process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), session.id), 'SIGKILL');
  const running = (session: ClientSession, exec: string) =>
    until(async () => (await session.exec(exec)).status === 'running', PATIENCE);
  /** With a file in a checkpoint, a service that serves it, and a command that runs. */
  const furnished = async (rehydrate?: string) => {
    const session = await stack.create({ policy: rehydrate ? { rehydrate } : {} });
    await session.run('echo kept > index.html');
    const service = await session.start(SERVE, { service: { name: 'web' } });
    const command = await session.start('sleep 1000');
    await running(session, service);
    await running(session, command);
    await session.checkpoint();
    return { session, service, command };
  };
  const visitorOf = async (session: ClientSession) => {
    const { token } = (await stack.api.post(`${session.path}/ports/8000/token`, {})).json;
    return new PreviewClient(stack.api.url, session.id, 8000, token);
  };
  const restartOf = async (session: ClientSession, service: string) => {
    const { json } = await stack.api.get(`${session.path}/execs?limit=50`);
    return json.execs.filter(({ follows }: { follows: string }) => follows === service);
  };

  it('comes back at once where its policy says so, and its services as new commands that name the old', async () => {
    const { session, service, command } = await furnished('immediately');
    kill(session);
    await until(async () => (await session.types()).includes('RehydrateRequested'), PATIENCE);
    await session.becomes('running');
    const events = await session.events();
    const asked = events.find(({ type }) => type === 'RehydrateRequested');
    expect(asked?.data).toMatchObject({ cause: 'policy' });
    expect(events.map(({ type }) => type)).toContain('SandboxLost');
    const unknown = { exit: { kind: 'unknown', reason: 'sandbox_lost' } };
    for (const exec of [service, command]) expect(await session.exec(exec)).toMatchObject(unknown);
    const [again, ...more] = await until(async () => {
      const found = await restartOf(session, service);
      return found.length > 0 && found[0].status === 'running' && found;
    }, PATIENCE);
    expect([again, more]).toEqual([expect.objectContaining({ purpose: 'service', epoch: 2 }), []]);
    // What was no service is not run again by itself.
    expect(await restartOf(session, command)).toEqual([]);
    const visitor = await visitorOf(session);
    await until(async () => (await visitor.get('/')).text === 'kept\n', PATIENCE);
    await session.stop();
  }, 180_000);

  it('stays lost where its policy says never, refuses what would need it, and comes back when asked', async () => {
    const { session, service } = await furnished('never');
    kill(session);
    await session.becomes('lost');
    const before = await session.types();
    expect(await session.ask('execs', { command: 'true' })).toMatchObject({
      status: 409,
      json: { code: 'not_running', message: expect.stringContaining('rehydrate') },
    });
    expect(await stack.api.post(`${session.path}/shell`, {})).toMatchObject({ status: 409 });
    expect((await (await visitorOf(session)).get('/')).status).toBe(503);
    const refused = await cli(['exec', session.id, '--', 'true'], stack.env);
    expect(refused).toMatchObject({ stderr: expect.stringContaining('rehydrate') });
    expect(refused.code).not.toBe(0);
    expect(await session.info()).toMatchObject({ status: 'lost' });
    // Nothing was asked of it; what had been under way may still be told.
    const since = (await session.types()).slice(before.length);
    expect(since.filter((type) => /Requested|Issued/.test(type))).toEqual([]);
    expect(await cli(['rehydrate', session.id], stack.env)).toMatchObject({ code: 0 });
    expect(await session.run('cat index.html')).toBe('kept\n');
    expect(await restartOf(session, service)).toHaveLength(1);
    await session.stop();
  }, 180_000);

  it('waits for whoever needs it, and comes back for a terminal and for a visitor too', async () => {
    const { session, service } = await furnished();
    kill(session);
    await session.becomes('lost');
    const visitor = await visitorOf(session);
    expect(await visitor.get('/')).toMatchObject({ status: 200, text: 'kept\n' });
    expect(await restartOf(session, service)).toHaveLength(1);

    await session.checkpoint();
    kill(session);
    await session.becomes('lost');
    const { json: shell } = await stack.api.post(`${session.path}/shell`, {});
    const path = `${session.path}/execs/${shell.id}/attach`;
    const terminal = await TerminalClient.open(stack.api.url, path, { key: stack.api.key });
    await terminal.shows(/[$#] $/m);
    terminal.type('cat /workspace/index.html\n');
    await terminal.shows(/^kept$/m);
    terminal.close();
    await session.stop();
  }, 180_000);

  it('comes back from what it was forked from, also when that was deleted since', async () => {
    const parent = await stack.create({ name: 'parent' });
    await parent.run('echo kept > file');
    const { json } = await parent.ask('fork?wait=60s');
    const child = stack.session(json.forks[0]);
    expect(await child.run('cat file')).toBe('kept\n');
    await stack.api.call('DELETE', `${parent.path}?force=true`);
    const kept = join(stack.dataDir, 'runner/ns/store/c');
    await until(() => !readdirSync(kept).some((name) => name.startsWith(parent.id)), PATIENCE);
    kill(child);
    await child.becomes('lost');
    expect(await child.run('cat file')).toBe('kept\n');
    await child.stop();
  }, 180_000);
});
