import { type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, releaseAll, releaseLater, until } from '@vmux/testing';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';
import { isRoot, startTestEmulator, type TestEmulator } from './emulator';

const group = describeUnless(isRoot, 'the emulator’s containers are namespaces, which need root');
const PATH = '/usr/local/bin:/usr/bin:/bin';

afterAll(releaseAll);

group('a Cloudflare sandbox that is put to sleep when nobody uses it', () => {
  let emulator: TestEmulator;
  let driver: CloudflareDriver;
  const specOf = (sessionId: string) => ({
    id: { sessionId, epoch: 1, instance: 'i1' },
    limits: { cpus: 0.5, memoryMiB: 128, diskMiB: 128, pids: 64 },
    ...{ image: null, egress: false, gpu: null },
  });
  const newSandbox = async (sessionId: string): Promise<SandboxId> => {
    const spec = specOf(sessionId);
    await driver.create(spec);
    return spec.id;
  };
  const restoredFrom = async (ref: string, sessionId: string): Promise<SandboxId> => {
    const spec = specOf(sessionId);
    await driver.restore(spec, { ref, bytes: 0 });
    return spec.id;
  };
  const clientOf = async (id: SandboxId) => {
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    releaseLater(() => client.close());
    return client;
  };

  const gone = (id: SandboxId) =>
    until(
      async () => {
        const found = await driver.probe(id);
        return found.state === 'gone' && found.evidence;
      },
      { timeoutMs: 60_000 },
    );
  /** Of one that was put to sleep. */
  const whereItIs = async (id: SandboxId): Promise<string> => {
    const evidence = await gone(id);
    expect(evidence).toContain('put to sleep');
    return /checkpoints\/\S+/.exec(evidence)?.[0] ?? '';
  };
  const noteOf = async (id: SandboxId): Promise<string> => {
    let text = '';
    for await (const piece of (await clientOf(id)).files.read('/workspace/note')) text += piece;
    return text;
  };

  beforeAll(async () => {
    emulator = await startTestEmulator({ VMUX_SLEEP_AFTER: '1s' });
    driver = new CloudflareDriver({ runnerId: 'one', worker: emulator });
  }, 120_000);

  it('is saved first, and says where', async () => {
    const id = await newSandbox('idle');
    const client = await clientOf(id);
    await client.files.write('/workspace/note', [Buffer.from('kept')]);
    client.close();
    expect(await noteOf(await restoredFrom(await whereItIs(id), 'woken'))).toBe('kept');
  }, 90_000);

  it('does not lose what somebody wrote while it was saved, who is gone again', async () => {
    const id = await newSandbox('visited');
    const client = await clientOf(id);
    await emulator.control('hold-save', id);
    client.close();
    await emulator.control('held', id);
    const visitor = await clientOf(id);
    await visitor.files.write('/workspace/note', [Buffer.from('late')]);
    visitor.close();
    await emulator.control('let-go', id);
    expect(await noteOf(await restoredFrom(await whereItIs(id), 'woken-too'))).toBe('late');
  }, 90_000);

  it('stays awake while a runner is connected or a command runs', async () => {
    const [watched, busy, idle] = [
      await newSandbox('watched'),
      await newSandbox('busy'),
      await newSandbox('idle-too'),
    ];
    await clientOf(watched);
    const client = await clientOf(busy);
    await client.start({ execId: 'long', argv: ['sleep', '1000'], env: { PATH } });
    client.close();
    await gone(idle);
    expect(await driver.probe(watched)).toEqual({ state: 'running' });
    expect(await driver.probe(busy)).toEqual({ state: 'running' });
  }, 90_000);

  it('is put to sleep though an alarm came before its container was started', async () => {
    const slow = { VMUX_SLEEP_AFTER: '1s', VMUX_EMULATOR_SLOW_START_MS: '2500' };
    const worker = await startTestEmulator(slow);
    const { id, ...spec } = specOf('slow');
    const runner = new CloudflareDriver({ runnerId: 'one', worker });
    await runner.create({ id, ...spec });
    await until(async () => (await runner.probe(id)).state === 'gone', { timeoutMs: 60_000 });
  }, 90_000);

  it('is saved before it is evicted when no runner is there to do it, and says where', async () => {
    const id = await newSandbox('evicted');
    const client = await clientOf(id);
    await client.files.write('/workspace/note', [Buffer.from('kept')]);
    await client.start({ execId: 'long', argv: ['sleep', '1000'], env: { PATH } });
    client.close();
    await emulator.control('evict', id, 30_000);
    expect(await gone(id)).toMatch(
      /^its container (ended|does not run any more).*shortly before are in checkpoints\//,
    );
  }, 90_000);
});
