import { spawn, spawnSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Body } from './bytes';
import { Connection, E, execOf, state, T } from './client';
import {
  builds,
  eventually,
  make,
  readAll,
  run,
  Sandbox,
  sh,
  startBody,
  startExec,
  stateOf,
} from './harness';

describe.each(builds)('the supervisor’s own life (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
  });
  afterEach(() => sandbox.end());

  const ended = async () => {
    const child = sandbox.process;
    return eventually(() => (child?.exitCode === null ? undefined : { code: child?.exitCode }));
  };

  it.each([
    ['a spool that it syncs', []],
    ['the spool of a sandbox that ends with its host', ['--ends-with-host']],
  ])(
    'tells after SIGKILL and restart from %s what ended, what is lost and what was cancelled, with all output',
    async (_kind, args) => {
      await sandbox.kill('SIGKILL');
      c = await sandbox.start(...args);
      await run(c, 'done', sh('echo done; echo err >&2; exit 5'));
      await run(c, 'dropped', sh('exit 6'));
      await c.request(T.RELEASE, new Body().bytes('dropped')).expect(T.OK);
      await c.request(T.CANCEL, new Body().bytes('never').u32(0)).expect(T.EXEC);
      await startExec(c, 'halfway', sh('echo before; exec sleep 1000'));
      await eventually(async () => (await stateOf(c, 'halfway')).stdoutSize > 0 || undefined);
      const running = (await stateOf(c, 'halfway')).pid;
      await sandbox.kill('SIGKILL');
      const after = await sandbox.start(...args);
      const done = await readAll(after, 'done');
      expect(done.data.toString()).toMatch(/^(done\nerr\n|err\ndone\n)$/);
      expect([done.exec.state, done.exec.code]).toEqual([state.exited, 5]);
      const halfway = await readAll(after, 'halfway');
      expect(halfway.data.toString()).toBe('before\n');
      expect([halfway.exec.state, halfway.exec.code]).toEqual([state.lost, 0]);
      const repeated = await startExec(after, 'halfway', sh('exit 0'));
      expect(repeated.state).toBe(state.lost);
      expect((await stateOf(after, 'never')).state).toBe(state.cancelled);
      expect(await stateOf(after, 'dropped')).toMatchObject({ state: state.exited, code: 6 });
      await eventually(() => !existsSync(`/proc/${running}`) || undefined);
      const fresh = await run(after, 'fresh', sh('echo new'));
      expect(fresh.data.toString()).toBe('new\n');
      expect(fresh.exec.seq).toBeGreaterThan(halfway.exec.seq);
      await sandbox.kill('SIGKILL');
      const third = await sandbox.start(...args);
      expect((await stateOf(third, 'halfway')).state).toBe(state.lost);
      expect((await readAll(third, 'fresh')).data.toString()).toBe('new\n');
    },
  );

  it('loses no byte of what an exec wrote before the supervisor was killed in full flow', async () => {
    const count = `${sandbox.folder}/count`;
    await startExec(
      c,
      'flow',
      sh(`i=0; while :; do echo line $i; echo $i >> ${count}; i=$((i+1)); done`),
    );
    await eventually(async () => (await stateOf(c, 'flow')).stdoutSize > 5000 || undefined);
    await sandbox.kill('SIGKILL');
    const after = await sandbox.start();
    const { data, exec } = await readAll(after, 'flow');
    const lines = data.toString().split('\n').slice(0, -1);
    expect(lines).toEqual(lines.map((_, i) => `line ${i}`));
    expect([exec.state, exec.stdoutSize, exec.flags & 16]).toEqual([state.lost, data.length, 0]);
  });

  it('does not touch what another epoch or instance left in the spool', async () => {
    await run(c, 'mine', sh('echo mine'));
    await sandbox.kill('SIGKILL');
    const [own] = readdirSync(sandbox.spool);
    const foreign = join(sandbox.spool, `6.${sandbox.instance}`);
    mkdirSync(foreign);
    writeFileSync(join(foreign, 'journal'), 'not ours');
    writeFileSync(join(sandbox.spool, own as string, 'stray'), 'x');
    const after = await sandbox.start();
    expect((await readAll(after, 'mine')).data.toString()).toBe('mine\n');
    expect(readdirSync(foreign)).toEqual(['journal']);
  });

  it('cuts the journal behind a torn record', async () => {
    await run(c, 'whole', sh('exit 4'));
    await sandbox.kill('SIGKILL');
    const [own] = readdirSync(sandbox.spool);
    const journal = join(sandbox.spool, own as string, 'journal');
    const fd = openSync(journal, 'r+');
    writeSync(fd, Buffer.alloc(100, 0x5a), 0, 100, 2 * 128);
    closeSync(fd);
    const after = await sandbox.start();
    expect((await stateOf(after, 'whole')).code).toBe(4);
    await run(after, 'next', sh('exit 8'));
    await sandbox.kill('SIGKILL');
    const third = await sandbox.start();
    expect((await stateOf(third, 'next')).code).toBe(8);
  });

  it('refuses a spool that another supervisor holds', async () => {
    const other = spawnSync(
      binary,
      [
        'run',
        `--listen=${sandbox.folder}/other`,
        `--spool=${sandbox.spool}`,
        '--epoch=7',
        `--instance=${sandbox.instance}`,
      ],
      { encoding: 'utf8' },
    );
    expect([other.status, other.stderr]).toEqual([
      3,
      expect.stringContaining('another supervisor'),
    ]);
  });

  it('refuses a client of another epoch, instance or version', async () => {
    const attempt = async (epoch: number, instance: string, version = 1) => {
      const connection = new Connection((await import('node:net')).connect(sandbox.socket));
      const refused = await connection.greet(epoch, instance, version).then(
        () => 0,
        (error: { code: number }) => error.code,
      );
      await connection.closed;
      return refused;
    };
    expect(await attempt(6, sandbox.instance)).toBe(E.MISMATCH);
    expect(await attempt(7, 'someone-else')).toBe(E.MISMATCH);
    expect(await attempt(7, sandbox.instance, 2)).toBe(E.VERSION);
    expect((await run(c, 'fine', sh('exit 0'))).exec.code).toBe(0);
  });

  it('stops everything on STOP, keeps the output readable, and ends on QUIT', async () => {
    await startExec(
      c,
      'polite',
      sh('trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'),
    );
    await startExec(c, 'stubborn', sh('trap "" TERM; echo up; while :; do sleep 0.05; done'));
    await startExec(c, 'background', sh('setsid sleep 1000 & echo $!'));
    for (const id of ['polite', 'stubborn', 'background'])
      await eventually(async () => (await stateOf(c, id)).stdoutSize > 0 || undefined);
    const background = Number((await readAll(c, 'background', { follow: false })).data.toString());
    await c.request(T.STOP, new Body().u32(300)).expect(T.OK);
    expect((await readAll(c, 'polite')).data.toString()).toMatch(/^up\n[\s\S]*bye\n/);
    expect(await stateOf(c, 'polite')).toMatchObject({ state: state.exited, code: 0 });
    expect(await stateOf(c, 'stubborn')).toMatchObject({ state: state.signaled, code: 9 });
    expect(existsSync(`/proc/${background}`)).toBe(false);
    const late = c.request(T.START, startBody('late', sh('true')));
    await expect(late.expect(T.EXEC)).rejects.toMatchObject({ code: E.STOPPING });
    await c.request(T.QUIT).expect(T.OK);
    expect(await ended()).toEqual({ code: 0 });
  });

  it('stops on SIGTERM with every end journalled', async () => {
    await startExec(c, 'x', sh('trap "exit 9" TERM; echo up; while :; do sleep 0.05; done'));
    await eventually(async () => (await stateOf(c, 'x')).stdoutSize > 0 || undefined);
    expect(await sandbox.kill('SIGTERM')).toBe(0);
    const after = await sandbox.start('--read-only');
    expect(await stateOf(after, 'x')).toMatchObject({ state: state.exited, code: 9 });
  });

  it('only serves what is on disk when it is read-only', async () => {
    await run(c, 'kept', sh('echo kept'));
    await startExec(c, 'cut', sh('echo cut; exec sleep 1000'));
    await eventually(async () => (await stateOf(c, 'cut')).stdoutSize > 0 || undefined);
    await sandbox.kill('SIGKILL');
    const after = await sandbox.start('--read-only');
    expect((await readAll(after, 'kept')).data.toString()).toBe('kept\n');
    expect(await readAll(after, 'cut')).toMatchObject({ exec: { state: state.lost } });
    for (const [type, body] of [
      [T.START, startBody('new', sh('true'))],
      [T.DIAL, new Body().u16(80).u32(0)],
      [T.FILE_STAT, new Body().bytes('').bytes('/').u8(0).u32(0)],
    ] as const)
      await expect(after.request(type, body).next()).rejects.toMatchObject({ code: E.READ_ONLY });
  });

  it('ends by itself when no runner has come within the lease', async () => {
    const leased = new Sandbox(binary);
    try {
      const runner = await leased.start('--lease-seconds=1');
      await startExec(runner, 'sleeper', sh('sleep 1000'));
      const { pid } = await stateOf(runner, 'sleeper');
      await runner.close();
      await eventually(() => leased.process?.exitCode === 0 || undefined);
      expect(leased.stderr).toContain('no runner for 1 s');
      expect(existsSync(`/proc/${pid}`)).toBe(false);
    } finally {
      await leased.end();
    }
  });

  it('ends by itself though a connection is open, when nobody has said anything within the lease', async () => {
    const leased = new Sandbox(binary);
    try {
      const runner = await leased.start('--lease-seconds=1');
      // A runner that is there says something now and then: longer than the lease all together.
      for (let times = 0; times < 30; times++) {
        await runner.request(T.PING, new Body().bytes('')).expect(T.PONG);
        await sleep(50);
      }
      expect(leased.process?.exitCode).toBeNull();
      await eventually(() => leased.process?.exitCode === 0 || undefined);
      expect(leased.stderr).toContain('no runner for 1 s');
    } finally {
      await leased.end();
    }
  });

  it('lets somebody in though all places are taken, when those who have them say nothing', async () => {
    const leased = new Sandbox(binary);
    try {
      const runner = await leased.start('--lease-seconds=1');
      for (let others = 1; others < 64; others++) await leased.connect();
      const late = await eventually(async () => {
        await runner.request(T.PING, new Body().bytes('')).expect(T.PONG);
        return Connection.open(leased.socket, leased.epoch, leased.instance).catch(() => undefined);
      });
      await late.request(T.PING, new Body().bytes('')).expect(T.PONG);
      await runner.request(T.PING, new Body().bytes('')).expect(T.PONG);
      await late.close();
    } finally {
      await leased.end();
    }
  });

  it('works on an inherited listener and an inherited spool directory', async () => {
    const [made, socket] = [join(sandbox.folder, 'made'), join(sandbox.folder, 'inherited')];
    const server = createServer().listen(made);
    await new Promise((done) => server.once('listening', done));
    const listener = (server as unknown as { _handle: { fd: number } })._handle.fd;
    mkdirSync(join(sandbox.folder, 'held'));
    const spool = openSync(join(sandbox.folder, 'held'), 'r');
    const child = spawn(
      binary,
      ['run', '--listen-fd=3', '--spool-fd=4', '--epoch=1', '--instance=i', '--lease-seconds=0'],
      { stdio: ['ignore', 'ignore', 'inherit', listener, spool] },
    );
    try {
      // Closing removes the path it knows; from here on only the supervisor accepts.
      renameSync(made, socket);
      await new Promise((done) => server.close(done));
      const connection = await Connection.open(socket, 1, 'i');
      const { data } = await run(connection, 'fds', sh('ls /proc/self/fd | tr "\\n" " "'));
      expect(data.toString()).toBe('0 1 2 3 ');
      await connection.request(T.QUIT).expect(T.OK);
      await connection.closed;
      expect(readdirSync(join(sandbox.folder, 'held'))).toEqual(['1.i']);
    } finally {
      closeSync(spool);
      child.kill('SIGKILL');
    }
  });

  it('is a byte pipe over an exec’s stdio', async () => {
    const child = spawn(binary, ['pipe', `--socket=${sandbox.socket}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const { Duplex } = await import('node:stream');
    const duplex = Duplex.from({ readable: child.stdout, writable: child.stdin });
    const connection = new Connection(duplex as never);
    await connection.greet(sandbox.epoch, sandbox.instance);
    const { data } = await run(connection, 'piped', sh('head -c 3000000 /dev/zero'));
    expect(data.length).toBe(3_000_000);
    const gone = new Promise((done) => child.once('exit', done));
    child.stdin.end();
    expect(await gone).toBe(0);
  });

  it('is a byte pipe also to a supervisor that does not listen yet', async () => {
    const late = `${sandbox.socket}.late`;
    const child = spawn(binary, ['pipe', `--socket=${late}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await sleep(200);
    renameSync(sandbox.socket, late);
    const hello = await new Promise<Buffer>((resolve) => child.stdout.once('data', resolve));
    renameSync(late, sandbox.socket);
    expect(hello.length).toBeGreaterThan(0);
    const gone = new Promise((done) => child.once('exit', done));
    child.stdin.end();
    expect(await gone).toBe(0);
  });

  it('reaps orphans and cannot be dumped', async () => {
    await run(c, 'orphans', sh('for i in 1 2 3 4 5; do (sleep 0.1 & ) ; done'));
    const pid = sandbox.process?.pid;
    await eventually(async () => {
      const zombies = spawnSync('ps', ['-o', 'stat=', '--ppid', String(pid)], { encoding: 'utf8' });
      return zombies.stdout.trim() === '' || undefined;
    });
    const owner = spawnSync('stat', ['-c', '%U', `/proc/${pid}/environ`], { encoding: 'utf8' });
    expect(owner.stdout.trim()).toBe('root');
  });

  it('gives execs no capability to trace, so that they cannot look into the supervisor', async () => {
    const pid = sandbox.process?.pid;
    const { data, exec } = await run(
      c,
      'peek',
      sh(
        `grep CapBnd /proc/self/status; readlink /proc/${pid}/fd/* /proc/${pid}/root; ls /proc/${pid}/cwd/ || head -c 1 /proc/${pid}/mem`,
      ),
    );
    expect(exec.code).not.toBe(0);
    expect(data.toString().match(/^(?!CapBnd|ls: |head: ).+$/gm)).toBeNull();
    const bounding = BigInt(`0x${/CapBnd:\s+([0-9a-f]+)/.exec(data.toString())?.[1]}`);
    expect((bounding >> 19n) & 1n).toBe(0n);
  });

  it('watches from the state it finds and misses no end', async () => {
    const watch = c.request(T.WATCH, new Body().u8(1));
    await watch.expect(T.OK);
    await startExec(c, 'seen', sh('sleep 0.1; exit 3'));
    for (;;) {
      const exec = execOf(await watch.expect(T.EXEC));
      if (exec.state === state.running) continue;
      expect([exec.execId, exec.state, exec.code]).toEqual(['seen', state.exited, 3]);
      break;
    }
  });
});

it('says what it is and how it is called', () => {
  const binary = builds[0]?.[2] as string;
  const said = (...args: string[]) => spawnSync(binary, args, { encoding: 'utf8' });
  expect(said('--version').stdout).toMatch(/^vmux-supervisor \d+\.\d+\.\d+ protocol 1\n$/);
  expect([said('--help').status, said().status, said('run', '--epoch=x').status]).toEqual([
    0, 2, 2,
  ]);
  const missing = said('run', '--listen=/tmp/x', '--epoch=1', '--instance=a/b', '--spool=/tmp/y');
  expect(missing.status).toBe(2);
});
