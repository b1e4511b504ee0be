import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describeUnless, releaseAll, temporaryDirectory } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { EmbeddedStack } from '../support/embedded-stack';

const isRoot = process.getuid?.() === 0;
type Files = Readonly<Record<string, string>>;

const WHEEL = `import sys, zipfile
meta = 'tiny-1.0.dist-info/'
with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'word = "installed"\\n')
    wheel.writestr(meta + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr(meta + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(meta + 'RECORD', '')
`;

/** Nothing is fetched: what is installed comes with the bundle. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('the set-up of a session', () => {
  let stack: EmbeddedStack;
  let api: ApiClient;

  beforeAll(async () => {
    stack = await EmbeddedStack.start();
    ({ api } = stack);
  }, 90_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 90_000);

  const bundleOf = async (files: Files, withWheel = false): Promise<string> => {
    const directory = temporaryDirectory('bundle');
    for (const [name, content] of Object.entries(files)) {
      mkdirSync(dirname(join(directory, name)), { recursive: true });
      writeFileSync(join(directory, name), content);
    }
    if (withWheel) {
      mkdirSync(join(directory, 'wheels'));
      execFileSync('python3', ['-c', WHEEL, join(directory, 'wheels')]);
    }
    const pinned = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0'];
    const tar = execFileSync('tar', ['-C', directory, ...pinned, '-c', '.']);
    const body = execFileSync('gzip', ['-n'], { input: tar });
    const digest = createHash('sha256').update(body).digest('hex');
    expect((await api.call('PUT', `/v1/bundles/${digest}`, { body })).status).toBeLessThan(300);
    return digest;
  };
  const sessionWith = async (bundle: string): Promise<string> => {
    const { status, json } = await api.post('/v1/sessions', { name: 'setup', bundle });
    expect(status).toBe(201);
    return json.id;
  };
  const run = async (session: string, command: string) =>
    (await api.post(`/v1/sessions/${session}/execs?wait=120s`, { command })).json;
  const execsOf = async (session: string) =>
    (await api.get(`/v1/sessions/${session}/execs`)).json.execs;
  const setupOf = async (session: string) =>
    (await execsOf(session)).find(({ purpose }: { purpose: string }) => purpose === 'setup');
  const detail = async (session: string) => (await api.get(`/v1/sessions/${session}`)).json;
  const logOf = async (session: string, exec: string) =>
    (await api.raw(`/v1/sessions/${session}/logs?exec=${exec}`)).bytes.toString();

  it('installs what requirements.txt asks for, as an exec with its own log, before the command runs', async () => {
    const requirements = '--no-index\n--find-links ./wheels\ntiny==1.0\n';
    const bundle = await bundleOf({ 'requirements.txt': requirements }, true);
    const session = await sessionWith(bundle);
    const command = "python3 -c 'import tiny; print(tiny.word)'";
    expect(await run(session, command)).toMatchObject({
      exit: { kind: 'exited', code: 0 },
      output: { stdout: { text: 'installed\n' } },
    });
    const setup = await setupOf(session);
    expect(setup).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expect(await logOf(session, setup.id)).toContain('Successfully installed tiny-1.0');
    const { setup: found, stages } = await detail(session);
    expect(found).toEqual({
      manifests: [
        {
          kind: 'requirements',
          path: 'requirements.txt',
          digest: createHash('sha256').update(requirements).digest('hex'),
        },
      ],
      missingTools: [],
    });
    const names = stages.map(({ stage }: { stage: string }) => stage);
    expect(names).toEqual(
      expect.arrayContaining(['provisioned', 'extracted', 'installed', 'started']),
    );

    const again = await sessionWith(bundle);
    expect(await run(again, command)).toMatchObject({
      output: { stdout: { text: 'installed\n' } },
    });
    expect(await setupOf(again)).toBeUndefined();
    expect((await detail(again)).stages).toContainEqual(
      expect.objectContaining({ stage: 'installed' }),
    );
  }, 180_000);

  it('installs a package of the workspace by npm, and what a script says in its header', async () => {
    const bundle = await bundleOf(
      {
        'package.json': '{"name":"app","dependencies":{"near":"file:./near"}}',
        'near/package.json': '{"name":"near","version":"1.0.0","bin":"cli.js"}',
        'near/cli.js': '#!/usr/bin/env node\nconsole.log("near")\n',
        'main.py': `# /// script\n# dependencies = ["tiny @ file:///workspace/wheels/tiny-1.0-py3-none-any.whl"]\n# ///\nimport tiny\nprint(tiny.word)\n`,
      },
      true,
    );
    const session = await sessionWith(bundle);
    expect(await run(session, 'near && python3 main.py')).toMatchObject({
      exit: { kind: 'exited', code: 0 },
      output: { stdout: { text: 'near\ninstalled\n' } },
    });
    const { setup } = await detail(session);
    expect(setup.manifests.map(({ kind }: { kind: string }) => kind)).toEqual(['script', 'npm']);
  }, 180_000);

  it('that fails keeps the command from running and says where to look', async () => {
    const bundle = await bundleOf({ 'requirements.txt': '--no-index\nabsent==1.0\n' });
    const session = await sessionWith(bundle);
    const { exit } = await run(session, 'echo ran');
    const setup = await setupOf(session);
    expect(exit).toMatchObject({
      kind: 'not_started',
      reason: 'setup_failed',
      message: expect.stringContaining(`its log is that of ${setup.id}`),
    });
    expect(await logOf(session, setup.id)).toContain('No matching distribution found for absent');
    expect(await run(session, 'echo ran')).toMatchObject({ exit: { kind: 'exited', code: 0 } });
  }, 180_000);

  it('names the tools that the sandbox does not have before anything starts', async () => {
    const bundle = await bundleOf({ 'package.json': '{"dependencies":{"x":"1"}}', 'bun.lock': '' });
    const session = await sessionWith(bundle);
    expect((await run(session, 'echo ran')).exit).toMatchObject({
      kind: 'not_started',
      message: expect.stringContaining('set-up needs bun'),
    });
    expect((await detail(session)).setup).toMatchObject({ missingTools: ['bun'] });
    expect(await setupOf(session)).toBeUndefined();
  }, 180_000);

  it('is left out when it is not wanted', async () => {
    const bundle = await bundleOf({ 'requirements.txt': '--no-index\nabsent==1.0\n' });
    const { json } = await api.post('/v1/sessions', { name: 'plain', bundle, setup: 'none' });
    expect(await run(json.id, 'echo ran')).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expect((await detail(json.id)).setup).toBeNull();
  }, 180_000);
});
