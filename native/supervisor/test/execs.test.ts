import { skipUnless } from '@vmux/testing';
import { Body } from './bytes';
import { type Connection, E, execOf, Refused, state, T } from './client';
import {
  builds,
  eventually,
  make,
  path,
  readAll,
  run,
  Sandbox,
  sh,
  startBody,
  startExec,
  stateOf,
} from './harness';

describe.each(builds)('execs (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
  });
  afterEach(() => sandbox.end());

  it('reports every exit code from 0 to 255', async () => {
    const codes = Array.from({ length: 256 }, (_, code) => code);
    const ends = await Promise.all(codes.map((code) => run(c, `code-${code}`, sh(`exit ${code}`))));
    expect(ends.map(({ exec }) => [exec.state, exec.code])).toEqual(
      codes.map((code) => [state.exited, code]),
    );
  }, 60_000);

  it('reports the signal that ended a program', async () => {
    const signals = [1, 2, 3, 6, 9, 11, 13, 14, 15];
    const ends = await Promise.all(
      signals.map((signal) => run(c, `sig-${signal}`, sh(`kill -${signal} $$`))),
    );
    expect(ends.map(({ exec }) => [exec.state, exec.code])).toEqual(
      signals.map((signal) => [state.signaled, signal]),
    );
  });

  it('says why a program could not be started', async () => {
    const reasons = await Promise.all([
      run(c, 'no-file', { argv: ['/does/not/exist'] }),
      run(c, 'no-name', { argv: ['no-such-program-anywhere'], env: [path] }),
      run(c, 'no-dir', { argv: ['/bin/true'], cwd: '/does/not/exist' }),
      run(c, 'not-executable', { argv: ['/etc/passwd'] }),
      run(c, 'no-user', { argv: ['/bin/true'], user: 'nobody-of-that-name' }),
    ]);
    expect(reasons.map(({ exec }) => [exec.state, exec.stage, exec.code])).toEqual([
      [state.failed, 3, 2],
      [state.failed, 3, 2],
      [state.failed, 2, 2],
      [state.failed, 3, 13],
      [state.failed, 1, 2],
    ]);
  });

  it('gives a program exactly the environment, directory and limits asked for', async () => {
    const { data } = await run(c, 'env', {
      argv: ['/bin/sh', '-c', 'pwd; cat; /usr/bin/env; ulimit -n; ls /proc/self/fd | wc -l'],
      env: ['A=1', 'EMPTY='],
      cwd: '/usr',
    });
    const lines = data.toString().trim().split('\n');
    expect(lines[0]).toBe('/usr');
    expect(lines.filter((line) => !/^(PWD|OLDPWD|SHLVL|_)=/.test(line)).slice(1, 3)).toEqual([
      'A=1',
      'EMPTY=',
    ]);
    // 0, 1, 2 and the directory that ls itself has open: nothing of the supervisor's.
    expect(lines.at(-1)).toBe('4');
    const status = await run(
      c,
      'signals',
      sh("grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$"),
    );
    const text = status.data.toString();
    expect(text.match(/Sig(?:Blk|Ign):\s+0{16}/g)).toHaveLength(2);
    const [pid, pgid, sid] = text.trim().split('\n').at(-1)?.trim().split(/\s+/) ?? [];
    expect([pgid, sid]).toEqual([pid, pid]);
  });

  const asRoot = skipUnless(process.getuid?.() === 0, 'needs root');
  asRoot('runs as another user with that user’s groups (needs root)', async () => {
    const byName = await run(c, 'by-name', sh('id -u; id -g', { user: 'nobody' }));
    const byNumber = await run(c, 'by-number', sh('id -u; id -g; id -G', { user: '1234:4321' }));
    expect(byName.data.toString().split('\n')[0]).toBe('65534');
    expect(byNumber.data.toString()).toBe('1234\n4321\n4321\n');
  });

  it('runs a start once, however often it is repeated', async () => {
    const start = sh(`echo ran >> ${sandbox.folder}/count; echo out; exit 3`);
    const repeats = await Promise.all(Array.from({ length: 5 }, () => startExec(c, 'once', start)));
    expect(new Set(repeats.map(({ seq }) => seq)).size).toBe(1);
    const first = await readAll(c, 'once');
    const other = await sandbox.connect();
    const later = await startExec(other, 'once', start);
    expect([later.state, later.code, later.stdoutSize]).toEqual([state.exited, 3, 4]);
    expect(first.data.toString()).toBe('out\n');
    const count = await run(c, 'count', sh(`cat ${sandbox.folder}/count`));
    expect(count.data.toString()).toBe('ran\n');
  });

  it('never runs what was cancelled before it came', async () => {
    const cancelled = execOf(
      await c.request(T.CANCEL, new Body().bytes('late').u32(0)).expect(T.EXEC),
    );
    expect(cancelled.state).toBe(state.cancelled);
    const started = await startExec(c, 'late', sh(`touch ${sandbox.folder}/ran`));
    expect([started.state, started.pid]).toEqual([state.cancelled, 0]);
    const look = await run(c, 'look', sh(`test -e ${sandbox.folder}/ran`));
    expect(look.exec.code).toBe(1);
  });

  it('cancels with TERM, and with KILL when TERM is ignored', async () => {
    await startExec(c, 'soft', sh('sleep 100'));
    await startExec(c, 'hard', sh("trap '' TERM; echo ready; while :; do sleep 1; done"));
    await eventually(async () => (await stateOf(c, 'hard')).stdoutSize > 0 || undefined);
    c.request(T.CANCEL, new Body().bytes('soft').u32(60_000));
    c.request(T.CANCEL, new Body().bytes('hard').u32(50));
    const [soft, hard] = await Promise.all([readAll(c, 'soft'), readAll(c, 'hard')]);
    expect([soft.exec.state, soft.exec.code]).toEqual([state.signaled, 15]);
    expect([hard.exec.state, hard.exec.code]).toEqual([state.signaled, 9]);
  });

  it('signals the whole process group', async () => {
    await startExec(c, 'group', sh('sleep 100 & sleep 100 & echo up; wait'));
    await eventually(async () => (await stateOf(c, 'group')).stdoutSize > 0 || undefined);
    await c.request(T.SIGNAL, new Body().bytes('group').u32(9)).expect(T.OK);
    const { exec } = await readAll(c, 'group');
    expect([exec.state, exec.code, exec.lateBytes]).toEqual([state.signaled, 9, 0]);
    const after = c.request(T.SIGNAL, new Body().bytes('group').u32(9));
    await expect(after.expect(T.OK)).rejects.toMatchObject({ code: E.ENDED });
  });

  it('ends an exec whose background process keeps the pipe, and lets that process live', async () => {
    const file = `${sandbox.folder}/alive`;
    const script = `(sleep 1; echo late; echo late >&2; echo alive > ${file}) & echo early`;
    const { data, exec } = await run(c, 'bg', sh(script));
    expect(data.toString()).toBe('early\n');
    expect([exec.state, exec.code, exec.stdoutSize]).toEqual([state.exited, 0, 6]);
    const late = await eventually(async () => {
      const now = await stateOf(c, 'bg');
      return now.lateBytes === 10 ? now : undefined;
    });
    expect([late.stdoutSize, late.stderrSize]).toEqual([6, 0]);
    await eventually(async () => {
      const { exec: look } = await run(c, `look-${Math.random()}`, sh(`test -s ${file}`));
      return look.code === 0 || undefined;
    });
    expect((await readAll(c, 'bg')).data.toString()).toBe('early\n');
  });

  it('takes 200 execs at once and mixes nothing up', async () => {
    const names = Array.from({ length: 200 }, (_, i) => `many-${i}`);
    const watch = c.request(T.WATCH, new Body().u8(1));
    await watch.expect(T.OK);
    const ends = await Promise.all(
      names.map((name) => run(c, name, sh(`echo ${name}; echo ${name} >&2; sleep 0.2`))),
    );
    for (const [i, end] of ends.entries()) {
      const of = (kind: number) =>
        Buffer.concat(end.output.filter((o) => o.kind === kind).map((o) => o.data)).toString();
      expect([of(1), of(2), end.exec.code]).toEqual([`many-${i}\n`, `many-${i}\n`, 0]);
    }
    const ended = new Set<string>();
    while (ended.size < names.length) {
      const exec = execOf(await watch.expect(T.EXEC));
      if (exec.state === state.exited) ended.add(exec.execId);
    }
    expect(ended).toEqual(new Set(names));
  }, 60_000);

  it('shows every exec not released to a watcher, and each released one only when asked', async () => {
    await run(c, 'kept', sh('exit 1'));
    await run(c, 'dropped', sh('echo x; exit 2'));
    await c.request(T.RELEASE, new Body().bytes('dropped')).expect(T.OK);
    const watch = c.request(T.WATCH, new Body().u8(0));
    const seen: string[] = [];
    for (let frame = await watch.next(); frame.type === T.EXEC; frame = await watch.next())
      seen.push(execOf(frame.body).execId);
    expect(seen).toEqual(['kept']);
    const released = await stateOf(c, 'dropped');
    expect([released.state, released.code, released.flags & 4]).toEqual([state.exited, 2, 4]);
    const again = await startExec(c, 'dropped', sh('exit 9'));
    expect([again.code, again.seq]).toEqual([2, released.seq]);
    await expect(readAll(c, 'dropped')).rejects.toMatchObject({ code: E.GONE });
  });

  it('refuses ids, argv and releases that make no sense, and stays up', async () => {
    const refused = async (type: number, body: Body) =>
      c
        .request(type, body)
        .next()
        .then(
          () => 0,
          (error: Refused) => error.code,
        );
    expect(await refused(T.START, startBody('a/b', sh('true')))).toBe(E.INVALID);
    expect(await refused(T.START, startBody('empty', { argv: [] }))).toBe(E.INVALID);
    expect(await refused(T.START, startBody('nul', { argv: ['a\0b'] }))).toBe(E.INVALID);
    expect(await refused(T.STATE, new Body().bytes('unseen'))).toBe(E.NOT_FOUND);
    await startExec(c, 'busy', sh('sleep 30'));
    expect(await refused(T.RELEASE, new Body().bytes('busy'))).toBe(E.RUNNING);
    expect((await run(c, 'fine', sh('exit 0'))).exec.code).toBe(0);
  });
});
