import { describeUnless, releaseAll, until } from '@vmux/testing';
import { EmbeddedStack } from '../support/embedded-stack';

const isRoot = process.getuid?.() === 0;
const PATIENCE = { timeoutMs: 90_000, everyMs: 100 };

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('a session nobody uses', () => {
  let stack: EmbeddedStack;
  beforeAll(async () => {
    stack = await EmbeddedStack.start();
  }, 120_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
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
});
