import { createHash } from 'node:crypto';
import { describeUnless, releaseAll } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { EmbeddedStack } from '../support/embedded-stack';
import { Setups } from '../support/setups';

const isRoot = process.getuid?.() === 0;
/** Nothing is fetched: what is installed comes with the bundle. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('the set-up of a session', () => {
  let stack: EmbeddedStack;
  let api: ApiClient;
  let setups: Setups;

  beforeAll(async () => {
    stack = await EmbeddedStack.start();
    ({ api } = stack);
    setups = new Setups(api);
  }, 90_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 90_000);

  it('installs what requirements.txt asks for, as an exec with its own log, before the command runs', async () => {
    const requirements = '--no-index\n--find-links ./wheels\ntiny==1.0\n';
    const bundle = await setups.bundle({ 'requirements.txt': requirements }, { wheel: true });
    const session = await setups.session(bundle);
    const command = "python3 -c 'import tiny; print(tiny.word)'";
    expect(await setups.run(session, command)).toMatchObject({
      exit: { kind: 'exited', code: 0 },
      output: { stdout: { text: 'installed\n' } },
    });
    const setup = await setups.of(session);
    expect(setup).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expect(await setups.log(session, setup.id)).toContain('Successfully installed tiny-1.0');
    const { setup: found, stages } = await setups.detail(session);
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

    const again = await setups.session(bundle);
    expect(await setups.run(again, command)).toMatchObject({
      output: { stdout: { text: 'installed\n' } },
    });
    expect(await setups.of(again)).toBeUndefined();
    expect((await setups.detail(again)).stages).toContainEqual(
      expect.objectContaining({ stage: 'installed' }),
    );
  }, 180_000);

  it('installs a package of the workspace by npm, and what a script says in its header', async () => {
    const bundle = await setups.bundle(
      {
        'package.json': '{"name":"app","dependencies":{"near":"file:./near"}}',
        'near/package.json': '{"name":"near","version":"1.0.0","bin":"cli.js"}',
        'near/cli.js': '#!/usr/bin/env node\nconsole.log("near")\n',
        'main.py': `# /// script\n# dependencies = ["tiny @ file:///workspace/wheels/tiny-1.0-py3-none-any.whl"]\n# ///\nimport tiny\nprint(tiny.word)\n`,
      },
      { wheel: true },
    );
    const session = await setups.session(bundle);
    expect(await setups.run(session, 'near && python3 main.py')).toMatchObject({
      exit: { kind: 'exited', code: 0 },
      output: { stdout: { text: 'near\ninstalled\n' } },
    });
    const { setup } = await setups.detail(session);
    expect(setup.manifests.map(({ kind }: { kind: string }) => kind)).toEqual(['script', 'npm']);
  }, 180_000);

  it('trusts whom the system of the sandbox trusts, unless it is told otherwise', async () => {
    const saying = 'echo "by $NODE_EXTRA_CA_CERTS $SSL_CERT_FILE $PIP_CERT"';
    const bundle = await setups.bundle({
      'package.json': JSON.stringify({
        ...{ name: 'app', dependencies: { near: 'file:./near' } },
        scripts: { postinstall: `${saying} > /tmp/trusted` },
      }),
      'near/package.json': '{"name":"near","version":"1.0.0"}',
    });
    const env = { PIP_CERT: '/own.crt' };
    const { json } = await api.post('/v1/sessions', { name: 'trust', bundle, env });
    const system = '/etc/ssl/certs/ca-certificates.crt';
    expect(await setups.run(json.id, 'cat /tmp/trusted')).toMatchObject({
      output: { stdout: { text: `by ${system} ${system} /own.crt\n` } },
    });
  }, 180_000);

  it('that fails keeps the command from running and says where to look', async () => {
    const bundle = await setups.bundle({ 'requirements.txt': '--no-index\nabsent==1.0\n' });
    const session = await setups.session(bundle);
    const { exit } = await setups.run(session, 'echo ran');
    const setup = await setups.of(session);
    expect(exit).toMatchObject({
      kind: 'not_started',
      reason: 'setup_failed',
      message: expect.stringContaining(`its log is that of ${setup.id}`),
    });
    expect(await setups.log(session, setup.id)).toContain(
      'No matching distribution found for absent',
    );
    expect(await setups.run(session, 'echo ran')).toMatchObject({
      exit: { kind: 'exited', code: 0 },
    });
  }, 180_000);

  it('names the tools that the sandbox does not have before anything starts', async () => {
    const bundle = await setups.bundle({
      'package.json': '{"dependencies":{"x":"1"}}',
      'bun.lock': '',
    });
    const session = await setups.session(bundle);
    expect((await setups.run(session, 'echo ran')).exit).toMatchObject({
      kind: 'not_started',
      message: expect.stringContaining('set-up needs bun'),
    });
    expect((await setups.detail(session)).setup).toMatchObject({ missingTools: ['bun'] });
    expect(await setups.of(session)).toBeUndefined();
  }, 180_000);

  it('is left out when it is not wanted', async () => {
    const bundle = await setups.bundle({ 'requirements.txt': '--no-index\nabsent==1.0\n' });
    const { json } = await api.post('/v1/sessions', { name: 'plain', bundle, setup: 'none' });
    expect(await setups.run(json.id, 'echo ran')).toMatchObject({
      exit: { kind: 'exited', code: 0 },
    });
    expect((await setups.detail(json.id)).setup).toBeNull();
  }, 180_000);
});
