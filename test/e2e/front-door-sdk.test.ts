import { execFile } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory } from '@vmux/testing';
import { Newcomer } from '../support/front-door';

const isRoot = process.getuid?.() === 0;
const exec = promisify(execFile);

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('the SDK from its tarball', () => {
  let user: Newcomer;
  let home: string;
  let env: NodeJS.ProcessEnv;
  const node = (...args: string[]) => exec(process.execPath, args, { cwd: home, env });

  beforeAll(async () => {
    user = new Newcomer();
    home = temporaryDirectory('consumer');
    const built = join(home, 'built');
    await exec(process.execPath, [join(projectRoot(), 'libs/sdk/pack.mjs'), built]);
    const npm = { cwd: home, env: { ...process.env, npm_config_update_notifier: 'false' } };
    const { stdout } = await exec('npm', ['pack', '--silent', built], npm);
    writeFileSync(join(home, 'package.json'), '{ "private": true }');
    const quiet = ['--offline', '--no-audit', '--no-fund', '--silent'];
    await exec('npm', ['install', ...quiet, `./${stdout.trim()}`], npm);
    cpSync(join(projectRoot(), 'examples/sdk'), home, { recursive: true });
    await user.vmux('up');
    const VMUX_API_KEY = readFileSync(join(user.data, 'api-key'), 'utf8').trim();
    env = { PATH: process.env.PATH, VMUX_URL: user.record().url, VMUX_API_KEY };
  }, 120_000);
  afterAll(releaseAll, 90_000);

  it('runs the ten-line example that imports it', async () => {
    const { stdout } = await node('hello.mjs');
    expect(stdout).toMatch(
      /^0 hello you from hello-[0-9a-f]{4}\nread -r name; .*\nSessionCreated\n/,
    );
    expect(stdout).toContain('ExecExited');
  }, 60_000);

  it('runs the example that requires it', async () => {
    const { stdout } = await node('hello.cjs');
    expect(stdout).toMatch(/^1\n2\n3\ntrue list the directory/);
  }, 60_000);

  it('brings its types along, for both', async () => {
    const use = `import { Sandbox, type TerminalItem, VmuxError } from '@vmux/sdk';
export async function use(): Promise<string> {
  const sandbox = await Sandbox.create({ signal: AbortSignal.timeout(1000) });
  const bytes: Buffer = await sandbox.files.read('a', { format: 'bytes' });
  const items: TerminalItem[] = [];
  for await (const item of (await sandbox.commands.shell()).attach({ cols: 80, rows: 24 })) items.push(item);
  // @ts-expect-error: a command is a line or a list
  await sandbox.commands.run(3);
  return VmuxError.is(items, 'file_not_found') ? items.code : bytes.toString();
}
`;
    for (const name of ['use.mts', 'use.cts']) writeFileSync(join(home, name), use);
    const tsc = join(projectRoot(), 'node_modules/@typescript/native/bin/tsc');
    const types = join(projectRoot(), 'node_modules/@types');
    const options = [
      '--noEmit',
      '--strict',
      '--module',
      'node20',
      '--types',
      'node',
      '--lib',
      'es2023',
      '--ignoreConfig',
    ];
    await node(tsc, ...options, '--typeRoots', types, 'use.mts', 'use.cts');
  }, 60_000);
});
