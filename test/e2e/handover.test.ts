import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import {
  describeUnless,
  projectRoot,
  type RunningProcess,
  releaseAll,
  startProcess,
  until,
} from '@vmux/testing';
import { type ModalEmulator, startModalEmulator } from '../../apps/runner-modal/test/emulator';
import { ClientSession } from '../support/embedded-stack';
import {
  type Gateway,
  roleOf,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../support/stack';

const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };
jest.setTimeout(180_000);

let stack: Stack;
let gateway: Gateway;
beforeAll(async () => {
  stack = await startStack();
  await startService(stack);
  gateway = await startGateway(stack);
});
afterAll(releaseAll);

const created = async (provider: string): Promise<ClientSession> => {
  const { json } = await until(async () => {
    const reply = await gateway.api.post('/v1/sessions', { name: 'handed', provider });
    if (reply.status === 201) return reply;
    throw new Error(reply.text);
  }, PATIENCE);
  const session = new ClientSession(gateway.api, json.id);
  await session.becomes('running');
  return session;
};
const reassignedOf = async (session: ClientSession) =>
  (await session.events()).filter(({ type }) => type === 'RunnerReassigned');

describe('a session whose runner is gone for good', () => {
  it('goes on with another one of the pool, and what the first says later is refused', async () => {
    const first = startRunner(stack, { runnerId: 'one', provider: 'cloud', pool: 'account' });
    const stranger = startRunner(stack, {
      runnerId: 'stranger',
      provider: 'cloud',
      pool: 'another account',
    });
    stranger.available = false;
    const killed = new AbortController();
    first.scripts.set('half', async (exec) => {
      await exec.write('stdout', 'first half, ');
      await once(killed.signal, 'abort');
      throw new Error('killed: it says nothing more');
    });
    const session = await created('cloud');
    const execId = await session.start('half');
    await until(async () => (await session.output(execId)) === 'first half, ', PATIENCE);
    killed.abort();
    await first.stop();
    const second = startRunner(stack, { runnerId: 'two', provider: 'cloud', pool: 'account' });
    stranger.available = true;
    await until(async () => (await session.types()).includes('SandboxAdopted'), PATIENCE);
    expect(await reassignedOf(session)).toMatchObject([{ data: { from: 'one', to: 'two' } }]);
    expect(stranger.orders).toEqual([]);

    const sandbox = second.sandboxOf(session.id);
    const usage = null;
    const exit = (code: number, stdout: number) => ({
      ...{ execId, outcome: { kind: 'exited', code } as const, usage },
      sizes: { stdout, stderr: 0, pty: 0 },
    });
    expect(await first.report(sandbox, 'ExecExited', exit(1, 12))).toMatchObject({
      refused: { code: 'wrong_runner' },
    });
    const rest = Buffer.from('second half');
    const chunk = { kind: 'chunk', execId, stream: 'stdout', at: Date.now() } as const;
    const overlapping = { ...chunk, offset: 6, bytes: Buffer.from('half, ') };
    await second.output(sandbox, [overlapping, { ...chunk, offset: 12, bytes: rest }]);
    await second.report(sandbox, 'ExecExited', exit(7, 23));
    expect((await session.ended(execId)).exit).toEqual({ kind: 'exited', code: 7 });
    expect(await session.output(execId)).toBe('first half, second half');
    await session.stop();
    expect(second.orders.map(({ type }) => type)).toContain('DestroySandbox');
    expect(second.faults).toEqual([]);
  });
});

describeUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux')(
  'a session on Modal (emulated) whose runner is killed and does not come back',
  () => {
    let modal: ModalEmulator;
    beforeAll(async () => {
      modal = await startModalEmulator();
    });
    afterAll(() => modal?.stop());

    const startModalRunner = (runnerId: string): Promise<RunningProcess<object>> =>
      startProcess({
        command: process.execPath,
        args: [join(projectRoot(), 'dist/apps/runner-modal/src/main.js')],
        env: {
          ...stack.env,
          ...roleOf(stack, 'test'),
          VMUX_RUNNER_ID: runnerId,
          VMUX_RUNNER_DIR: join(stack.dir, runnerId),
          MODAL_SERVER_URL: modal.url,
          MODAL_TOKEN_ID: modal.tokenId,
          MODAL_TOKEN_SECRET: modal.tokenSecret,
        },
        ready: (line) => (line.startsWith('{"ready"') ? JSON.parse(line) : undefined),
      });

    it('keeps its sandbox: another runner takes it over in the middle of an exec', async () => {
      const first = await startModalRunner('modal-1');
      const session = await created('modal');
      const script =
        'for i in $(seq 60); do head -c 100000 /dev/urandom; sleep 0.5; done | tee /tmp/blob; exit 5';
      const execId = await session.start(script);
      await until(async () => (await session.output(execId)).length > 0, PATIENCE);
      await first.kill('SIGKILL');
      const second = await startModalRunner('modal-2');
      const ended = await until(
        async () => {
          const exec = await session.exec(execId);
          if (exec.endedAt !== null) return exec;
          throw new Error(exec.status);
        },
        { timeoutMs: 120_000, everyMs: 200 },
      );
      expect(await reassignedOf(session)).toMatchObject([
        { data: { from: 'modal-1', to: 'modal-2' } },
      ]);
      expect(ended.exit).toEqual({ kind: 'exited', code: 5 });
      const { bytes } = await gateway.api.raw(`${session.path}/logs?exec=${execId}&stream=stdout`);
      expect(bytes.length).toBe(60 * 100_000);
      const inside = await session.run('sha256sum < /tmp/blob');
      expect(inside.slice(0, 64)).toBe(createHash('sha256').update(bytes).digest('hex'));

      // The first one returns: the sandbox is no longer its own, neither to follow nor to end.
      const again = await startModalRunner('modal-1');
      expect(await session.run('echo still here')).toBe('still here\n');
      expect((await session.types()).filter((type) => type === 'SandboxStarted')).toHaveLength(1);
      await second.kill('SIGKILL');
      await until(async () => (await reassignedOf(session)).length === 2, PATIENCE);
      expect(await session.run('echo and back')).toBe('and back\n');
      await session.stop();
      const left = (await modal.sandboxes()).filter(({ result }) => result === null);
      expect(left).toEqual([]);
      await again.stop();
    });
  },
);
