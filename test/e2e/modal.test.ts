import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  describeUnless,
  projectRoot,
  releaseAll,
  skipUnless,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';
import { ModalControl } from '../support/modal-control';
import { hasTmux, Tmux } from '../support/tmux';

const CLI = join(projectRoot(), 'dist/apps/cli/src/main.js');
interface Said {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };
jest.setTimeout(180_000);

describeUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux')(
  'a session on Modal (emulated)',
  () => {
    let stack: EmbeddedStack;
    let modal: ModalControl;
    beforeAll(async () => {
      stack = await EmbeddedStack.start(null, { VMUX_WITH: 'modal-local' });
      modal = new ModalControl(stack.dataDir);
    });
    afterEach(() => modal.faults({ queueGpus: false }));
    afterAll(async () => {
      await stack?.stop();
      await releaseAll();
    });

    const asked = async (body: object): Promise<ClientSession> => {
      const { status, json } = await until(async () => {
        const reply = await stack.api.post('/v1/sessions', { provider: 'modal', ...body });
        if (reply.status === 201) return reply;
        throw new Error(reply.text);
      }, PATIENCE);
      expect(status).toBe(201);
      return stack.session(json.id);
    };
    const isQueued = (session: ClientSession) =>
      until(async () => {
        const { making } = await session.info();
        if (making?.stage === 'queued') return making;
        throw new Error(JSON.stringify(making));
      }, PATIENCE);
    const runningOf = async ({ id }: ClientSession) =>
      (await modal.sandboxesOf(id)).filter(({ result }) => result === null);

    it('shows that its GPU is queued, and leaves nothing when it is stopped meanwhile', async () => {
      await modal.faults({ queueGpus: true });
      const session = await asked({ resources: { gpu: 'T4' } });
      expect(await isQueued(session)).toEqual({
        stage: 'queued',
        since: expect.any(String),
        detail: 'waiting for T4 on Modal',
      });
      const { json } = await stack.api.get('/v1/sessions');
      expect(json.sessions).toContainEqual(
        expect.objectContaining({
          id: session.id,
          status: 'starting',
          making: expect.objectContaining({ stage: 'queued' }),
        }),
      );
      await until(async () => (await runningOf(session)).length === 1, PATIENCE);
      await session.stop();
      await until(async () => (await runningOf(session)).length === 0, PATIENCE);
      await until(async () => (await session.types()).includes('SandboxReleased'), PATIENCE);
      expect((await session.info()).making).toBeNull();
      await modal.faults({ queueGpus: false });
      expect(await runningOf(session)).toEqual([]);
    });

    it('starts when there is a GPU, and says in its history how long it was queued', async () => {
      await modal.faults({ queueGpus: true });
      const session = await asked({ resources: { gpu: 'T4' } });
      await isQueued(session);
      await modal.faults({ queueGpus: false });
      await session.becomes('running');
      const stages = await until(async () => {
        const reached = (await session.info()).stages as readonly { stage: string; at: string }[];
        if (reached.some(({ stage }) => stage === 'provisioned')) return reached;
        throw new Error(JSON.stringify(reached));
      }, PATIENCE);
      expect(stages.map(({ stage }) => stage)).toEqual(['queued', 'provisioned']);
      expect((await session.info()).making).toBeNull();
      await session.stop();
    });

    it('is made once though its runner is killed while it is queued', async () => {
      await modal.faults({ queueGpus: true });
      const session = await asked({ resources: { gpu: 'T4' } });
      await until(async () => (await runningOf(session)).length === 1, PATIENCE);
      process.kill(stack.pidOf('runner-modal'), 'SIGKILL');
      await until(async () => (await modal.sandboxesOf(session.id)).length === 2, PATIENCE);
      await modal.faults({ queueGpus: false });
      await session.becomes('running');
      expect(await runningOf(session)).toHaveLength(1);
      await session.stop();
      await until(async () => (await runningOf(session)).length === 0, PATIENCE);
    });

    it('goes on where it is when a move that waits for a GPU is given up', async () => {
      await modal.faults({ queueGpus: true });
      const session = await stack.create({ provider: 'ns', resources: { gpu: null } });
      await session.run('echo kept > file');
      await modal.faults({ createDelayMs: 600_000 });
      expect((await session.ask('move', { provider: 'modal' })).status).toBeLessThan(300);
      await until(async () => (await runningOf(session)).length === 1, PATIENCE);
      expect((await session.ask('resume')).status).toBeLessThan(300);
      await modal.faults({ createDelayMs: 0 });
      await session.becomes('running');
      expect(await session.run('cat file')).toBe('kept\n');
      await until(async () => (await runningOf(session)).length === 0, PATIENCE);
      expect((await session.info()).provider).toBe('ns');
      await session.stop();
    });

    /** In a directory with that vmux.toml; what was printed, and the exit code. */
    const vmux = (toml: string, ...args: readonly string[]): Promise<Said> => {
      const cwd = temporaryDirectory('project');
      writeFileSync(join(cwd, 'vmux.toml'), toml);
      const env = { ...process.env, ...stack.env };
      return new Promise((resolve) => {
        const child = execFile(
          process.execPath,
          [CLI, ...args],
          { cwd, env },
          (_, stdout, stderr) => resolve({ status: child.exitCode, stdout, stderr }),
        );
      });
    };

    it('begins with an image that its vmux.toml says how to build', async () => {
      const toml = (lines: string) =>
        `provider = "modal"\ncommand = "cat /made/note"\n[image]\nfrom = "python"\nrun = [${lines}]`;
      const good = toml('"mkdir /made", "echo by a step > /made/note"');
      expect(await vmux(good, 'run', '--no-bundle')).toEqual({
        status: 0,
        stdout: 'by a step\n',
        stderr: '',
      });
      const bad = await vmux(
        toml('"echo so far so good", "echo hopeless; false"'),
        'run',
        '--no-bundle',
      );
      expect(bad).toMatchObject({
        status: 1,
        stderr: expect.stringMatching(/build failed: RUN echo hopeless[\s\S]*\nvmux: hopeless\n$/),
      });
      const { json } = await stack.api.get('/v1/sessions?status=failed');
      const failed = await stack.session(json.sessions[0].id).info();
      expect(failed.message).toMatch(/build failed: RUN echo hopeless; false exited with 1/);
      expect(failed.message).toMatch(/hopeless\n?$/);
      const here = await vmux(good, 'run', '--no-bundle', '--provider', 'ns');
      expect(here).toMatchObject({ stderr: expect.stringContaining('ns builds no images here') });
    });

    it('can be asked for in vain, and for nothing', async () => {
      const before = (await stack.api.get('/v1/sessions')).json.sessions.length;
      const examples = readFileSync(join(projectRoot(), 'examples/vmux.toml'), 'utf8');
      for (const target of ['gpu', 'jupyter', 'vllm', 'image', 'whisper', 'embeddings', 'llm-chat'])
        expect([target, await vmux(examples, 'run', '--dry-run', target)]).toEqual([
          target,
          expect.objectContaining({
            status: 0,
            stdout: expect.stringContaining('modal (emulated) would take it'),
          }),
        ]);
      const wrong = await vmux(examples, 'run', '--dry-run', '--gpu', 'RTX3090', 'gpu');
      expect(wrong).toMatchObject({
        status: 1,
        stderr: expect.stringContaining('choose one of T4, L4'),
      });
      const elsewhere = await vmux(examples, 'run', '--dry-run', '--provider', 'ns', 'gpu');
      expect(elsewhere).toMatchObject({
        status: 1,
        stderr: expect.stringContaining('ns has no gpu here'),
      });
      expect((await stack.api.get('/v1/sessions')).json.sessions).toHaveLength(before);
    });

    it('is labelled as emulated wherever it shows', async () => {
      const made = await stack.api.post('/v1/sessions', { provider: 'modal' });
      expect(made.json).toMatchObject({ provider: 'modal', emulated: true });
      const session = stack.session(made.json.id);
      await session.becomes('running');
      expect(await session.info()).toMatchObject({ provider: 'modal', emulated: true });
      expect((await stack.api.get(`${session.path}/tree`)).json).toMatchObject({ emulated: true });
      const said = async (...args: readonly string[]) => (await vmux('', ...args)).stdout;
      expect(await said('ps')).toMatch(new RegExp(`${session.id}.*modal \\(emulated\\)`));
      expect(await said('status')).toContain('modal (emulated): available');
      expect(await said('doctor')).toContain('provider modal (emulated)');
      expect(await said('inspect', session.id)).toContain('"emulated": true');
      expect(await said('inspect', '--tree', session.id)).toContain('modal (emulated)');
      const dry = await said('run', '--dry-run', '--json', '--provider', 'modal', '--', 'true');
      expect(JSON.parse(dry)).toMatchObject({ taker: 'modal', emulated: true });
      await session.stop();
    });

    skipUnless(hasTmux, 'needs tmux')('tells who runs a command what it waits for', async () => {
      await modal.faults({ queueGpus: true });
      const env = { ...stack.env, PATH: process.env.PATH };
      const terminal = new Tmux({ cwd: stack.dataDir, env });
      const cli = `${process.execPath} ${CLI}`;
      terminal.line(
        `${cli} run --no-bundle --name seen --provider modal --gpu L4 -- echo it runs now`,
      );
      await terminal.until(/^vmux: session seen-[0-9a-f]{4} on modal \(emulated\)$/m);
      await terminal.until('vmux: waiting for L4 on Modal …');
      const other = new Tmux({ cwd: stack.dataDir, env });
      other.line(`${cli} ps`);
      await other.until('starting (queued)');
      await modal.faults({ queueGpus: false });
      await terminal.until(/^it runs now$/m);
      const { json } = await stack.api.get('/v1/sessions?name=seen');
      await stack.session(json.sessions[0].id).stop();
    });
  },
);

describeUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux')(
  'a session whose time on Modal (emulated) is nearly over',
  () => {
    let stack: EmbeddedStack;
    beforeAll(async () => {
      // Half of it is left when the session is stored.
      const more = { VMUX_WITH: 'modal-local', VMUX_MODAL_LIFETIME_SECONDS: '50' };
      stack = await EmbeddedStack.start(null, more);
    });
    afterAll(async () => {
      await stack?.stop();
      await releaseAll();
    });

    it('is stored, and goes on in another sandbox when it is wanted', async () => {
      const session = await stack.create({ provider: 'modal' });
      await session.run('echo kept > file');
      const first = (await session.info()).sandbox;
      await session.becomes('released');
      expect(await session.run('cat file')).toBe('kept\n');
      const next = (await session.info()).sandbox;
      expect(next.epoch).toBeGreaterThan(first.epoch);
      const events = await session.events();
      expect(events).toContainEqual(
        expect.objectContaining({
          type: 'ReleaseRequested',
          data: expect.objectContaining({ cause: 'provider_limit', epoch: first.epoch }),
        }),
      );
      // It began with the snapshot that was taken when it was stored.
      const modal = new ModalControl(stack.dataDir);
      expect(await modal.images()).toContainEqual(expect.objectContaining({ creates: 1 }));
      await session.stop();
      await until(async () => {
        const left = await modal.sandboxesOf(session.id);
        return left.length >= 2 && left.every(({ result }) => result !== null);
      }, PATIENCE);
    });
  },
);
