import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { ModalDriver, type ModalDriverSettings } from '../src/drivers/modal-driver';
import { nameOf } from '../src/drivers/modal-tags';
import { type ModalEmulator, startModalEmulator } from './emulator';

jest.setTimeout(120_000);

const group = describeUnless(
  process.platform === 'linux' && process.getuid?.() === 0,
  'the emulator’s workers are namespaces, which need Linux and root',
);

const QUIET = {
  dropOutputEveryBytes: 0,
  throttleCalls: 0,
  unavailableCalls: 0,
  createDelayMs: 0,
  loseCreateAnswers: 0,
  callDelayMs: 0,
  refuseTags: 0,
  queueGpus: false,
  quota: 0,
  inputDelayMs: 0,
  routerTokenSeconds: 3600,
};
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

group('on Modal (emulated)', () => {
  let emulator: ModalEmulator;
  let driver: ModalDriver;
  const made: SandboxId[] = [];
  const drivers: ModalDriver[] = [];
  const snapshotsDirectory = temporaryDirectory('snapshots');

  const settings = (change: Partial<ModalDriverSettings> = {}): ModalDriverSettings => ({
    runnerId: 'test',
    tokenId: emulator.tokenId,
    tokenSecret: emulator.tokenSecret,
    serverUrl: emulator.url,
    appName: 'vmux-test',
    supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
    snapshotsDirectory,
    defaultImage: 'python:3.12-slim-bookworm',
    ...change,
  });
  const open = (change: Partial<ModalDriverSettings> = {}) => {
    const opened = new ModalDriver(settings(change));
    drivers.push(opened);
    return opened;
  };
  const newId = (): SandboxId => {
    const id = { sessionId: 'web-0a1b', epoch: 1, instance: randomBytes(8).toString('hex') };
    made.push(id);
    return id;
  };
  const specOf = (id: SandboxId, gpu: string | null = null) => ({
    id,
    limits: { cpus: 1, memoryMiB: 256, diskMiB: 512, pids: 256 },
    image: null,
    egress: false,
    gpu,
  });
  const connect = async (id: SandboxId) => SupervisorClient.connect(await driver.openPipe(id), id);

  const say = async (id: SandboxId, script: string): Promise<string> => {
    const client = await connect(id);
    const execId = `e${randomBytes(6).toString('hex')}`;
    const said: Buffer[] = [];
    await client.start({ execId, argv: ['sh', '-c', script], env: { PATH } });
    for await (const item of client.read(execId)) if ('data' in item) said.push(item.data);
    client.close();
    return Buffer.concat(said).toString();
  };

  beforeAll(async () => {
    emulator = await startModalEmulator();
    driver = open();
  });
  afterEach(async () => {
    await emulator.faults(QUIET);
    await Promise.all(made.splice(0).map((id) => driver.destroy(id)));
  });
  afterAll(async () => {
    await Promise.all(drivers.map((opened) => opened.close()));
    await emulator.stop();
    await releaseAll();
  });

  it('output is exact though its stream is dropped again and again', async () => {
    const id = newId();
    await driver.create(specOf(id));
    await emulator.faults({ dropOutputEveryBytes: 700_000 });
    const client = await connect(id);
    const bytes = 8 * 1024 * 1024;
    const argv = ['sh', '-c', `head -c ${bytes} /dev/urandom | tee /tmp/out`];
    await client.start({ execId: 'flood', argv, env: { PATH } });
    const hash = createHash('sha256');
    let size = 0;
    for await (const item of client.read('flood')) {
      if (!('data' in item)) continue;
      hash.update(item.data);
      size += item.data.length;
    }
    const sums: Buffer[] = [];
    await client.start({ execId: 'sum', argv: ['sha256sum', '/tmp/out'], env: { PATH } });
    for await (const item of client.read('sum')) if ('data' in item) sums.push(item.data);
    client.close();
    expect([size, hash.digest('hex')]).toEqual([bytes, String(sums).slice(0, 64)]);
  });

  it('what is written to it goes in few calls, and whole, though each takes long', async () => {
    const id = newId();
    await driver.create(specOf(id));
    await emulator.faults({ inputDelayMs: 50 });
    const client = await connect(id);
    const MiB = 1024 * 1024;
    const content = randomBytes(8 * MiB);
    const pieces = function* () {
      for (let at = 0; at < content.length; at += 65_536) yield content.subarray(at, at + 65_536);
    };
    const before = await emulator.inputCalls();
    await client.files.write('/tmp/in', pieces());
    const calls = (await emulator.inputCalls()) - before;
    client.close();
    expect(calls).toBeLessThan(32);
    const digest = createHash('sha256').update(content).digest('hex');
    expect(await say(id, 'sha256sum < /tmp/in')).toBe(`${digest}  -\n`);
  });

  it('a router token that has expired is renewed on the way', async () => {
    await emulator.faults({ routerTokenSeconds: 2 });
    const id = newId();
    await driver.create(specOf(id));
    const client = await connect(id);
    await client.start({ execId: 'before', argv: ['sleep', '3'], env: { PATH } });
    for await (const _ of client.read('before'));
    await client.start({ execId: 'after', argv: ['true'], env: { PATH } });
    for await (const item of client.read('after'))
      if (item.kind === 'end') expect(item.exec.outcome).toEqual({ kind: 'exited', code: 0 });
    client.close();
  });

  it.each([
    ['lost', /internal failure|worker was lost/],
    ['evicted', /evicted|worker was lost/],
    ['idle-timeout', /idle|worker was lost/],
    ['timeout', /lifetime|worker was lost/],
  ])('a sandbox that was %s is gone, though its exit code is 0', async (how, evidence) => {
    const id = newId();
    await driver.create(specOf(id));
    await emulator.end(nameOf(id), how);
    expect(await driver.probe(id)).toEqual({
      state: 'gone',
      evidence: expect.stringMatching(evidence),
    });
    await expect(driver.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
  });

  it('a GPU that is queued can be given up, and leaves nothing', async () => {
    await emulator.faults({ queueGpus: true });
    const id = newId();
    const giving = new AbortController();
    const created = driver.create(specOf(id, 'T4'), { signal: giving.signal });
    created.catch(() => undefined);
    await until(async () => (await emulator.sandboxes()).some(({ gpu }) => gpu === 'T4:1'));
    giving.abort(new Error('given up'));
    await expect(created).rejects.toThrow('given up');
    await emulator.faults({ queueGpus: false });
    await until(async () => {
      const left = (await emulator.sandboxes()).filter(({ gpu }) => gpu === 'T4:1');
      return left.every(({ result }) => result !== null);
    });
    expect(await driver.list()).toEqual([]);
  });

  it('what its maker left queued when it died is found, and ended', async () => {
    await emulator.faults({ queueGpus: true });
    const id = newId();
    const first = open();
    const created = first.create(specOf(id, 'L4'));
    created.catch(() => undefined);
    await until(async () => (await emulator.sandboxes()).some(({ gpu }) => gpu === 'L4:1'));
    const second = open();
    expect(await second.list()).toEqual([
      expect.objectContaining({ id, probe: { state: 'gone', evidence: expect.any(String) } }),
    ]);
    await second.destroy(id);
    const left = (await emulator.sandboxes()).filter(({ gpu }) => gpu === 'L4:1');
    expect(left).toEqual([expect.objectContaining({ result: expect.anything() })]);
    await expect(created).rejects.toThrow();
    expect(await second.list()).toEqual([]);
  });

  it('a GPU that is queued is had when there is one', async () => {
    await emulator.faults({ queueGpus: true });
    const id = newId();
    const said: string[] = [];
    const onStage = (stage: string, detail: string | null) => said.push(`${stage} ${detail}`);
    const created = driver.create(specOf(id, 'h100:2'), { onStage });
    await until(async () => (await emulator.sandboxes()).some(({ gpu }) => gpu === 'H100:2'));
    await emulator.faults({ queueGpus: false });
    expect(said).toEqual(['queued waiting for H100:2 on Modal']);
    await created;
    expect(said.slice(1)).toEqual(['starting null']);
    expect(await driver.probe(id)).toEqual({ state: 'running' });
    (await connect(id)).close();
  });

  it('a create whose answer was lost is found again by another driver', async () => {
    const id = newId();
    await driver.create(specOf(id));
    const other = open();
    expect(await other.adopt(id)).toMatchObject({ id, probe: { state: 'running' } });
    await expect(other.create(specOf(id))).rejects.toMatchObject({ reason: 'exists' });
    expect(await other.list()).toHaveLength(1);
  });

  it.each([null, 'T4'])(
    'a sandbox is made once though Modal’s answer was lost (gpu: %s)',
    async (gpu) => {
      const id = newId();
      await emulator.faults({ loseCreateAnswers: 1 });
      await driver.create(specOf(id, gpu));
      const made = (await emulator.sandboxes()).filter(({ name }) => name === nameOf(id));
      expect(made).toEqual([expect.objectContaining({ result: null })]);
      expect(await driver.list()).toEqual([
        expect.objectContaining({ id, probe: { state: 'running' } }),
      ]);
      expect(await say(id, 'echo here')).toBe('here\n');
    },
  );

  it('a sandbox that is being made is not made a second time by the same driver', async () => {
    const id = newId();
    const both = await Promise.allSettled([driver.create(specOf(id)), driver.create(specOf(id))]);
    expect(both).toContainEqual(expect.objectContaining({ status: 'fulfilled' }));
    expect(both).toContainEqual(
      expect.objectContaining({ reason: expect.objectContaining({ reason: 'exists' }) }),
    );
    expect(await say(id, 'echo here')).toBe('here\n');
  });

  it('a sandbox is not left behind when Modal refuses what comes after its making', async () => {
    const id = newId();
    await emulator.faults({ refuseTags: 1 });
    await expect(driver.create(specOf(id, 'T4'))).rejects.toMatchObject({ next: 'refuse' });
    const made = (await emulator.sandboxes()).filter(({ name }) => name === nameOf(id));
    expect(made).toEqual([expect.objectContaining({ result: expect.anything() })]);
  });

  it('a service that is away for a moment is asked again', async () => {
    await emulator.faults({ unavailableCalls: 2 });
    const id = newId();
    await driver.create(specOf(id));
    expect(await driver.probe(id)).toEqual({ state: 'running' });
  });

  it('a call that is throttled makes nothing and may be tried again', async () => {
    const id = newId();
    await driver.capabilities();
    await emulator.faults({ throttleCalls: 1 });
    await expect(driver.create(specOf(id))).rejects.toMatchObject({ next: 'retry' });
    await driver.create(specOf(id));
  });

  it('no capacity is told as such, and may be tried again', async () => {
    await emulator.faults({ quota: 1 });
    const id = newId();
    await driver.create(specOf(id));
    await expect(driver.create(specOf(newId()))).rejects.toMatchObject({
      next: 'retry',
      message: expect.stringContaining('no capacity'),
    });
  });

  it('the end of its lifetime is said in time, also by a driver that found it', async () => {
    // Modal's own warning time and two seconds.
    const lifetimeMs = 15 * 60 * 1000 + 2_000;
    const id = newId();
    const said: { readonly id: SandboxId; readonly endsAtMs: number }[] = [];
    const first = open({ lifetimeMs });
    first.onEnding((of, endsAtMs) => said.push({ id: of, endsAtMs }));
    await first.create(specOf(id));
    const second = open({ lifetimeMs });
    second.onEnding((of, endsAtMs) => said.push({ id: of, endsAtMs }));
    await second.list();
    await until(() => said.length >= 2);
    expect(said.map((one) => one.id)).toEqual([id, id]);
    expect(said[0]?.endsAtMs).toBeGreaterThan(Date.now() + 14 * 60 * 1000);
  });

  it('a snapshot is what another sandbox begins with, and the first goes on', async () => {
    const first = newId();
    await driver.create(specOf(first));
    await say(first, 'mkdir /workspace; echo kept > /workspace/note');
    const taken = await driver.snapshot(first, { sinceNs: 1n });
    await say(first, 'echo later > /workspace/note');
    const second = newId();
    await driver.restore(specOf(second), taken);
    expect(await say(second, 'cat /workspace/note; ls -A /.vmux/spool')).toMatch(
      new RegExp(`^kept\\n1\\.${second.instance}\\n$`),
    );
    expect(await say(first, 'cat /workspace/note')).toBe('later\n');
  });

  it('a GPU that Modal does not have is refused before anything is asked, with the list', async () => {
    await expect(driver.create(specOf(newId(), 'RTX3090'))).rejects.toThrow(/choose one of T4, L4/);
    await expect(driver.create(specOf(newId(), 'A10:5'))).rejects.toThrow(/1 to 4 of A10/);
    expect((await emulator.sandboxes()).filter(({ gpu }) => /RTX3090|A10/.test(gpu))).toEqual([]);
  });

  it('the app and an image are asked for once, however many sandboxes there are', async () => {
    const fresh = open();
    const asked = async () => {
      const { appGetOrCreate, imageGetOrCreate } = (await emulator.calls()).byName;
      return [appGetOrCreate, imageGetOrCreate];
    };
    const [apps = 0, images = 0] = await asked();
    await Promise.all([fresh.create(specOf(newId())), fresh.create(specOf(newId()))]);
    const [appsThen, imagesThen = 0] = await asked();
    expect([appsThen, imagesThen > images]).toEqual([apps + 1, true]);
    // The template's name stands for the same image.
    await fresh.create({ ...specOf(newId()), image: 'python' });
    expect(await asked()).toEqual([appsThen, imagesThen]);
  });

  it('a day’s sandboxes are listed without asking for all of them at once', async () => {
    const ids = Array.from({ length: 18 }, newId);
    for (const id of ids) {
      await driver.create(specOf(id));
      await emulator.end(nameOf(id), 'lost');
    }
    await emulator.faults({ callDelayMs: 100 });
    expect((await open().list()).length).toBeGreaterThanOrEqual(ids.length);
    expect((await emulator.calls()).mostAtOnce).toBe(16);
  });

  it('an image that cannot be built is refused with the reason', async () => {
    const spec = { ...specOf(newId()), image: 'nowhere/none:1' };
    await expect(driver.create(spec)).rejects.toMatchObject({
      next: 'refuse',
      message: expect.stringContaining('no such image'),
    });
  });

  it('build steps are run once for all that ask for the same, and heard meanwhile', async () => {
    const build = ['echo first line; mkdir /built', 'echo "of two steps" > /built/note; sleep 1'];
    const [first, second, third] = [newId(), newId(), newId()];
    const said: string[] = [];
    const onStage = (stage: string, detail: string | null) => said.push(`${stage}: ${detail}`);
    await Promise.all([
      driver.create({ ...specOf(first), build }, { onStage }),
      driver.create({ ...specOf(second), build }),
    ]);
    expect(said).toContainEqual(expect.stringMatching(/^building: (.*\n)*first line\n/));
    expect(said.at(-1)).toBe('starting: null');
    // A process of its own asks again, and Modal knows the image by its definition.
    await open().create({ ...specOf(third), build });
    for (const id of [first, second, third])
      expect(await say(id, 'cat /built/note')).toBe('of two steps\n');
    const steps = build.map((line) => `RUN ${line}`);
    expect(await emulator.builds()).toEqual([expect.objectContaining({ commands: steps })]);
  });

  it('a build step that fails is told with the end of its log, and makes nothing', async () => {
    const id = newId();
    const build = ['echo all is well', 'echo no such package; exit 3'];
    await expect(driver.create({ ...specOf(id), build })).rejects.toMatchObject({
      next: 'refuse',
      message: expect.stringMatching(/build failed: .*exited with 3[\s\S]*no such package/),
    });
    expect((await emulator.sandboxes()).map(({ name }) => name)).not.toContain(nameOf(id));
  });

  it('a wrong token makes the provider unavailable and says what to set', async () => {
    expect(await open({ tokenSecret: 'wrong' }).capabilities()).toMatchObject({
      available: false,
      reason: expect.stringContaining('MODAL_TOKEN_ID'),
    });
    expect(await open({ tokenId: '' }).capabilities()).toMatchObject({
      available: false,
      reason: 'no Modal token: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET',
    });
  });
});
