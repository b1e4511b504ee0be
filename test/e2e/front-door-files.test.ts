import { createHash } from 'node:crypto';
import { chmodSync, lstatSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox, Vmux } from '@vmux/sdk';
import { describeUnless, releaseAll, seededRandom, temporaryDirectory } from '@vmux/testing';
import { Newcomer } from '../support/front-door';

const isRoot = process.getuid?.() === 0;
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('input and files', () => {
  let user: Newcomer;
  let id: string;
  let sandbox: Sandbox;
  const vmux = (...args: string[]) => user.vmux(...args);

  beforeAll(async () => {
    user = new Newcomer();
    const { stdout } = await user.vmux('run', '--name', 'files', '--', 'hostname');
    expect(stdout).not.toBe('');
    [{ id }] = JSON.parse((await user.vmux('ps', '--json')).stdout);
    const apiKey = readFileSync(join(user.data, 'api-key'), 'utf8').trim();
    sandbox = await Sandbox.connect(id, { vmux: new Vmux({ url: user.record().url, apiKey }) });
  }, 120_000);
  afterAll(releaseAll, 90_000);

  it('gives a command its input, to the end, byte for byte', async () => {
    const input = seededRandom(6).bytes(3_000_001);
    const { code, stdout } = await user.with({ stdin: input }, 'exec', id, '--', 'sha256sum');
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${sha256(input)}  -\n` });
    const none = await vmux('exec', id, '--', 'cat; echo end');
    expect(none).toEqual({ code: 0, stdout: 'end\n', stderr: '' });
    const ignored = await user.with({ stdin: 'x' }, 'exec', '-n', id, '--', 'cat; echo end');
    expect(ignored.stdout).toBe('end\n');
  }, 60_000);

  it('ends with the command that reads only a part of it', async () => {
    const input = Buffer.alloc(5_000_000, 'y\n');
    const { code, stdout, stderr } = await user.with(
      { stdin: input },
      ...['exec', id, '--', 'head', '-c', '4'],
    );
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'y\ny\n', stderr: '' });
  }, 60_000);

  it('gives input from a program too', async () => {
    const whole = await sandbox.commands.run('cat; exit 3', { stdin: 'typed' });
    expect(whole).toMatchObject({ stdout: 'typed', exitCode: 3 });
    const command = await sandbox.commands.start(['sh', '-c', 'read a; read b; echo "$b $a"'], {
      takesInput: true,
    });
    const input = command.input();
    await Promise.all([input.write('one\n'), input.write('two\n')]);
    expect((await command.wait()).stdout).toBe('two one\n');
    await expect(input.write('late')).rejects.toMatchObject({ code: 'exec_ended' });
  }, 60_000);

  it('reads, writes, lists and removes files from a program', async () => {
    const { files } = sandbox;
    const bytes = seededRandom(7).bytes(1_200_000);
    await files.write('deep/er/data.bin', bytes, { mode: 0o600 });
    expect(sha256(await files.read('deep/er/data.bin', { format: 'bytes' }))).toBe(sha256(bytes));
    expect(await files.read('deep/er/data.bin', { format: 'bytes', offset: 5, length: 3 })).toEqual(
      bytes.subarray(5, 8),
    );
    await files.write('/workspace/deep/hello.txt', 'hé');
    expect(await files.read('deep/hello.txt')).toBe('hé');
    expect(await files.list('deep')).toMatchObject([
      { name: 'er', type: 'directory' },
      { name: 'hello.txt', type: 'file', size: 3 },
    ]);
    expect(await files.stat('deep/er/data.bin')).toMatchObject({ mode: '0600', size: 1_200_000 });
    await files.makeDir('deep/made/twice');
    await files.makeDir('deep/made/twice');
    expect(await files.exists('deep/made/twice')).toBe(true);
    await files.remove('deep', { recursive: true });
    expect(await files.exists('deep')).toBe(false);
    await expect(files.read('deep')).rejects.toMatchObject({ code: 'file_not_found', status: 404 });
    const stop = AbortSignal.abort(new Error('enough'));
    await expect(files.read('/etc/hostname', { signal: stop })).rejects.toThrow('enough');
  }, 60_000);

  it('copies files and directories both ways', async () => {
    const from = temporaryDirectory('cp');
    mkdirSync(join(from, 'tree/empty'), { recursive: true });
    const bytes = seededRandom(8).bytes(2_000_000);
    writeFileSync(join(from, 'tree/größe.bin'), bytes);
    writeFileSync(join(from, 'tree/.env'), 'SECRET=1');
    writeFileSync(join(from, 'tree/run.sh'), '#!/bin/sh\necho ran\n');
    chmodSync(join(from, 'tree/run.sh'), 0o755);
    symlinkSync('run.sh', join(from, 'tree/link'));
    const here = (...args: string[]) => user.with({ cwd: from }, 'cp', ...args);
    expect(await here('tree', `${id}:`)).toEqual({ code: 0, stdout: '', stderr: '' });
    expect((await vmux('exec', id, '--', 'tree/link; ls -A tree | wc -l')).stdout).toBe('ran\n5\n');
    expect(await here('tree/run.sh', `${id}:/tmp/`)).toMatchObject({ code: 0 });
    expect((await vmux('exec', id, '--', '/tmp/run.sh')).stdout).toBe('ran\n');

    expect(await here(`${id}:tree`, 'back')).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(sha256(readFileSync(join(from, 'back/größe.bin')))).toBe(sha256(bytes));
    expect(lstatSync(join(from, 'back/run.sh')).mode & 0o777).toBe(0o755);
    expect(lstatSync(join(from, 'back/empty')).isDirectory()).toBe(true);
    expect(lstatSync(join(from, 'back/link')).isSymbolicLink()).toBe(true);
    const { stdout } = await here('--json', `${id}:tree/run.sh`, '.');
    expect(JSON.parse(stdout)).toEqual({ session: id, to: 'run.sh', entries: 1 });
    expect(lstatSync(join(from, 'run.sh')).mode & 0o777).toBe(0o755);
  }, 60_000);

  it('takes nothing dangerous out of a session', async () => {
    const to = temporaryDirectory('cp');
    await vmux('exec', id, '--', 'mkdir -p evil && ln -s /etc/passwd evil/l && echo x > evil/a');
    expect(await user.with({ cwd: to }, 'cp', `${id}:evil`, 'evil')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('links to "/etc/passwd", outside of the directory'),
    });
    await vmux('exec', id, '--', 'mkdir -p suid && echo x > suid/a && chmod 6755 suid/a');
    expect(await user.with({ cwd: to }, 'cp', `${id}:suid`, '.')).toMatchObject({ code: 0 });
    expect(lstatSync(join(to, 'suid/a')).mode & 0o7777).toBe(0o755);
  }, 60_000);

  it('shows what the sandbox uses', async () => {
    const told = JSON.parse((await vmux('stats', '--json', id)).stdout);
    expect(told).toMatchObject({
      ...{ sessionId: id, memory: { bytes: expect.any(Number), limitBytes: expect.any(Number) } },
      cpu: { usedMs: expect.any(Number), cores: expect.any(Number) },
    });
    expect((await vmux('stats', id)).stdout).toMatch(
      /^CPU +MEMORY +DISK .*\n\d+ % +[\d.]+ MiB of /,
    );
  }, 60_000);

  it('says what is wrong with a copy', async () => {
    const cases: [string[], number, string][] = [
      [['a', 'b'], 2, 'write one of the two as SESSION:path'],
      [['nothing-here', `${id}:`], 1, 'there is no "nothing-here" here'],
      [[`${id}:nothing-there`, '.'], 1, `there is no "nothing-there" in ${id}`],
      [['x', 'nobody-0000:'], 1, 'there is no session "nobody-0000"'],
    ];
    for (const [args, code, message] of cases) {
      const said = await vmux('cp', ...args);
      expect(said).toMatchObject({ code, stderr: expect.stringContaining(message) });
    }
  }, 60_000);

  it('runs the targets of vmux.toml', async () => {
    writeFileSync(
      join(user.project, 'vmux.toml'),
      `default = "hello"
[targets.hello]
command = "echo hello $WHO; cat made"
env = { WHO = "you" }
setup = "echo set up; echo made > made"
[targets.broken]
command = "echo never"
setup = "exit 3"
`,
    );
    expect(await vmux('run', '--rm')).toMatchObject({
      code: 0,
      stdout: 'set up\nhello you\nmade\n',
    });
    expect(await vmux('run', '--rm', 'hello', '-e', 'WHO=me')).toMatchObject({
      stdout: 'set up\nhello me\nmade\n',
    });
    expect(await vmux('run', 'broken')).toMatchObject({
      ...{ code: 1, stdout: '' },
      stderr: expect.stringContaining('the set-up did not succeed'),
    });
    expect(await vmux('run', 'helo')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('did you mean hello?'),
    });
    const dry = await vmux('run', '--dry-run', '--json');
    expect(JSON.parse(dry.stdout)).toMatchObject({
      ...{ target: 'hello', command: 'echo hello $WHO; cat made' },
      session: { name: 'hello', env: ['WHO'] },
      bundle: { files: 1 },
    });
  }, 90_000);
});
