import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';

/** Plain processes enforce no limit, as sandboxes without root and without delegated groups do not. */
const env = { VMUX_PLAIN_PROCESSES: 'isolate-nothing' };

describeOnStack({ env })('on a provider that cannot limit it, a session', (stack) => {
  it('that names none runs', async () => {
    const session = await stack.create({ provider: 'process' });
    expect(await session.run('echo runs')).toBe('runs\n');
  }, 60_000);

  for (const [name, resources] of [
    ['memory', { memoryMiB: 512 }],
    ['processors', { cpus: 1 }],
    ['processes', { pids: 64 }],
  ] as const)
    it(`that names its ${name} fails before anything is made, and says why`, async () => {
      const body = { name: 'limited', provider: 'process', resources };
      const { json } = await stack.api.post('/v1/sessions', body);
      const session = stack.session(json.id);
      const info = await until(async () => {
        const found = await session.info();
        return found.status !== 'starting' && found;
      });
      expect(info).toMatchObject({
        status: 'failed',
        message: expect.stringContaining(`the ${name} of a sandbox of process cannot be limited`),
      });
      expect(await session.types()).not.toContain('SandboxStarted');
    }, 60_000);
});
