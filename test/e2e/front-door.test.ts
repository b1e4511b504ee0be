import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import { livesOn, Newcomer, statusOf } from '../support/front-door';

const isRoot = process.getuid?.() === 0;

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('./vmux', () => {
  let user: Newcomer;
  const vmux = (...args: string[]) => user.vmux(...args);

  beforeAll(() => {
    user = new Newcomer();
    mkdirSync(join(user.project, 'sub'));
    writeFileSync(join(user.project, 'sub/hello.txt'), 'hello\n');
    writeFileSync(join(user.project, '.env'), 'SECRET=1\n');
  });
  afterAll(releaseAll, 90_000);

  it('runs a command for a user who has nothing yet, and leaves nothing behind', async () => {
    const first = await vmux('run', '--', 'cat sub/hello.txt; ls -A; exit 5');
    expect(first).toMatchObject({ code: 5, stdout: 'hello\nsub\n' });
    expect(first.stderr).toContain('starting the stack');
    expect(first.stderr).toContain('provider ns: this is root, and /bin/true runs in it');
    const second = await vmux('run', '--rm', '--', 'echo', 'hello  again');
    expect(second).toEqual({ code: 0, stdout: 'hello  again\n', stderr: '' });

    const { pid, parts } = user.record();
    const up = await vmux('up');
    expect(up).toMatchObject({ code: 0, stdout: expect.stringContaining(`process ${pid}`) });
    expect(await vmux('stop', '@last')).toMatchObject({ code: 1 });
    const [{ id }] = JSON.parse((await vmux('ps', '--json')).stdout);
    expect(await vmux('stop', id)).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect((await vmux('logs', id)).stdout).toBe('hello\nsub\n');
    await until(() => readdirSync(join(user.data, 'runner/ns/s')).length === 0, {
      timeoutMs: 20_000,
    });
    expect(await vmux('down')).toMatchObject({ code: 0 });
    for (const each of [pid, ...parts.map((part) => part.pid)]) expect(livesOn(each)).toBe(false);
    expect(await vmux('status')).toMatchObject({ code: 1 });
    expect(await vmux('down')).toMatchObject({ code: 0, stdout: 'no stack runs here\n' });
  }, 120_000);

  it('ends what a killed stack left running, and has its sessions again', async () => {
    const { stdout } = await vmux('run', '-d', '--', 'sleep 2; echo done; exit 4');
    const id = stdout.trim();
    const before = user.record();
    process.kill(before.pid, 'SIGKILL');
    await until(() => !livesOn(before.pid));
    expect(await vmux('ps')).toMatchObject({ code: 1 });
    expect(await vmux('up')).toMatchObject({ code: 0 });
    const survivors = before.parts.filter(({ pid }) => livesOn(pid));
    expect(survivors.map((part) => ({ ...part, is: statusOf(part.pid) }))).toEqual([]);
    expect(await vmux('wait', id)).toMatchObject({ code: 4, stderr: '' });
    expect((await vmux('logs', id)).stdout).toBe('done\n');
  }, 120_000);

  it('keeps directory, variables and functions between the execs of a named shell', async () => {
    const { stdout } = await vmux('run', '-d', '--name', 'shell', '--', 'true');
    const id = stdout.trim();
    const inShell = (name: string, ...line: string[]) =>
      vmux('exec', id, '--shell', name, '--', ...line);
    const set = "cd /tmp; export A='b c'; L=local; f() { echo \"f $1\"; }; alias hi='echo hey'";
    expect(await inShell('one', set)).toMatchObject({ code: 0, stderr: '' });
    expect(await inShell('one', 'pwd; echo "$A $L"; f x; hi; exit 3')).toEqual({
      ...{ code: 3, stdout: '/tmp\nb c local\nf x\nhey\n', stderr: '' },
    });
    expect(await inShell('one', 'cd /usr; false')).toMatchObject({ code: 1 });
    expect(await inShell('one', 'pwd')).toMatchObject({ stdout: '/usr\n' });
    expect(await inShell('one', 'f', 'as it is; really')).toMatchObject({
      stdout: 'f as it is; really\n',
    });
    expect(await inShell('two', 'pwd; echo "<$A>"')).toMatchObject({ stdout: '/workspace\n<>\n' });
    const typed = await user.with(
      { stdin: 'in\n' },
      'exec',
      id,
      '--shell',
      'one',
      '--',
      'read -r R',
    );
    expect(typed).toMatchObject({ code: 0 });
    expect(await inShell('one', 'echo $R')).toMatchObject({ stdout: 'in\n' });
    expect(await vmux('exec', '--create', 'fresh', '--', 'echo made')).toMatchObject({
      ...{ code: 0, stdout: 'made\n' },
    });
    expect(await vmux('exec', '--create', 'fresh', '--', 'echo found')).toEqual({
      ...{ code: 0, stdout: 'found\n', stderr: '' },
    });
  }, 120_000);

  it('shows why what a directory asks for could not be installed, also when nothing stays', async () => {
    const cwd = join(user.home, 'asks');
    mkdirSync(cwd);
    writeFileSync(join(cwd, 'requirements.txt'), '--no-index\nabsent==1.0\n');
    const line = ['run', '--rm', '--setup', 'auto', '--', 'echo', 'ran'];
    const { code, stdout, stderr } = await user.with({ cwd }, ...line);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(/^vmux: set-up: .*absent==1\.0/m);
    expect(stderr).toContain('to look into it: without --rm; to run the command all the same');
    expect(stderr).not.toContain('vmux logs');
    const without = await user.with({ cwd }, 'run', '--rm', '--setup', 'none', '--', 'echo', 'ran');
    expect(without).toMatchObject({ code: 0, stdout: 'ran\n' });
  }, 120_000);

  it('says what sessions without an image of their own have, and doctor what of it is missing', async () => {
    const tools = ['python3', 'uv', 'node', 'git', 'curl'];
    const look = `for each in ${tools.join(' ')}; do command -v $each >/dev/null && echo $each; done
      [ ! -r /etc/ssl/certs/ca-certificates.crt ] || echo certificates`;
    const { stdout } = await vmux('run', '--rm', '--', look);
    const had = stdout.trim().split('\n');
    const missing = [...tools, 'certificates'].filter((name) => !had.includes(name));
    const { findings } = JSON.parse((await vmux('doctor', '--json')).stdout);
    const image = findings.find(({ what }: { what: string }) => what === 'default image');
    expect(image.detail).toMatch(/^this machine’s own programs \(\/usr\), with/);
    const [, lacks] = /, without (.*)$/.exec(image.detail) ?? [];
    expect(lacks?.split(', ') ?? []).toEqual(missing);
    expect(Boolean(image.fix)).toBe(missing.length > 0);
  }, 120_000);

  it('hands INT on to a command, which ends as it likes', async () => {
    const line = 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.1; done';
    const running = user.start({}, 'run', '--rm', '--', line);
    await until(() => running.said.stdout === 'ready\n', { timeoutMs: 30_000 });
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({ code: 9, stdout: 'ready\ncaught\n' });
  }, 60_000);
});
