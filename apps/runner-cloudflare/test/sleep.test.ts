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
  const newSandbox = async (sessionId: string): Promise<SandboxId> => {
    const id = { sessionId, epoch: 1, instance: 'i1' };
    const limits = { cpus: 0.5, memoryMiB: 128, diskMiB: 128, pids: 64 };
    await driver.create({ id, limits, image: null, egress: false, gpu: null });
    return id;
  };
  const clientOf = async (id: SandboxId) => {
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    releaseLater(() => client.close());
    return client;
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
    const probe = await until(
      async () => {
        const found = await driver.probe(id);
        return found.state === 'gone' && found;
      },
      { timeoutMs: 60_000 },
    );
    const [ref] = /checkpoints\/\S+/.exec(probe.evidence) ?? [];
    expect(probe.evidence).toContain('put to sleep');
    const other = { ...id, sessionId: 'woken' };
    const limits = { cpus: 0.5, memoryMiB: 128, diskMiB: 128, pids: 64 };
    await driver.restore(
      { id: other, limits, image: null, egress: false, gpu: null },
      { ref: ref ?? '', bytes: 0 },
    );
    let text = '';
    for await (const piece of (await clientOf(other)).files.read('/workspace/note')) text += piece;
    expect(text).toBe('kept');
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
    await until(async () => (await driver.probe(idle)).state === 'gone', { timeoutMs: 60_000 });
    expect(await driver.probe(watched)).toEqual({ state: 'running' });
    expect(await driver.probe(busy)).toEqual({ state: 'running' });
  }, 90_000);

  it('is saved before it is evicted when no runner is there to do it, and says where', async () => {
    const id = await newSandbox('evicted');
    const client = await clientOf(id);
    await client.files.write('/workspace/note', [Buffer.from('kept')]);
    await client.start({ execId: 'long', argv: ['sleep', '1000'], env: { PATH } });
    client.close();
    await emulator.control('evict', id, 30_000);
    const gone = await until(
      async () => {
        const found = await driver.probe(id);
        return found.state === 'gone' && found;
      },
      { timeoutMs: 60_000 },
    );
    expect(gone.evidence).toMatch(
      /^its container (ended|does not run any more).*shortly before are in checkpoints\//,
    );
  }, 90_000);
});
