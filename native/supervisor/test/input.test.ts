import { Body } from './bytes';
import { type Connection, E, type Exchange, outputOf, state, T } from './client';
import {
  builds,
  eventually,
  make,
  readAll,
  readBody,
  run,
  Sandbox,
  sh,
  startExec,
  stateOf,
} from './harness';

const EOF = 1;
const stdin = (
  c: Connection,
  exec: string,
  writer: number,
  offset: number,
  data: string | Buffer,
  flags = 0,
) => c.request(T.STDIN, new Body().bytes(exec).u64(writer).u64(offset).u8(flags).bytes(data));

async function ack(exchange: Exchange) {
  const body = await exchange.expect(T.STDIN_ACK);
  const [next, flags] = [Number(body.u64()), body.u8()];
  return { next, full: (flags & 1) !== 0, ended: (flags & 2) !== 0 };
}

/** Waits until the merged output of an exec contains a text, and gives all of it up to there. */
async function until(exchange: Exchange, seen: { text: string }, wanted: string | RegExp) {
  while (!seen.text.match(wanted)) {
    const piece = outputOf(await exchange.expect(T.OUTPUT));
    seen.text += piece.kind === 3 ? `[${piece.streamOffset}]` : piece.data.toString();
    exchange.send(T.CREDIT, new Body().u32(piece.data.length));
  }
}

describe.each(builds)('input and terminals (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
  });
  afterEach(() => sandbox.end());

  it('applies input once, drops repeats and refuses gaps', async () => {
    await startExec(c, 'cat', sh('cat', { stdin: true }));
    expect(await ack(stdin(c, 'cat', 100, 0, 'hello '))).toMatchObject({ next: 6 });
    expect(await ack(stdin(c, 'cat', 100, 0, 'hello '))).toMatchObject({ next: 6 });
    expect(await ack(stdin(c, 'cat', 100, 3, 'lo world'))).toMatchObject({ next: 11 });
    await expect(ack(stdin(c, 'cat', 100, 12, 'x'))).rejects.toMatchObject({
      code: E.GAP,
      detail: 11n,
    });
    await expect(ack(stdin(c, 'cat', 101, 4, 'x'))).rejects.toMatchObject({ code: E.GAP });
    expect(await ack(stdin(c, 'cat', 101, 0, '!\n'))).toMatchObject({ next: 2 });
    const end = await ack(stdin(c, 'cat', 100, 11, 'bye\n', EOF));
    expect(end).toEqual({ next: 16, full: false, ended: true });
    const { data, exec } = await readAll(c, 'cat');
    expect(data.toString()).toBe('hello world!\nbye\n');
    expect(exec.code).toBe(0);
    await expect(ack(stdin(c, 'cat', 100, 15, 'x'))).rejects.toMatchObject({ code: E.ENDED });
  });

  it('refuses a writer older than the 32 it remembers', async () => {
    await startExec(c, 'cat', sh('cat', { stdin: true }));
    for (let writer = 10; writer < 50; writer++)
      expect((await ack(stdin(c, 'cat', writer, 0, '.'))).next).toBe(1);
    await expect(ack(stdin(c, 'cat', 10, 0, '.'))).rejects.toMatchObject({ code: E.STALE_WRITER });
    expect(await ack(stdin(c, 'cat', 49, 0, '.', EOF))).toMatchObject({ ended: true });
    expect((await readAll(c, 'cat')).data.toString()).toBe('.'.repeat(40));
  });

  it('says full, then ready, and passes 5 MB through a program that reads late', async () => {
    await startExec(c, 'late', sh('sleep 0.3; sha256sum; wc -c < /dev/null', { stdin: true }));
    const data = Buffer.alloc(5_000_000, 'vmux-');
    let [offset, fulls] = [0, 0];
    while (offset < data.length) {
      const exchange = stdin(c, 'late', 1, offset, data.subarray(offset, offset + 65536));
      const { next, full } = await ack(exchange);
      offset = next;
      if (!full) continue;
      fulls++;
      await exchange.expect(T.STDIN_READY);
    }
    expect(fulls).toBeGreaterThan(0);
    await ack(stdin(c, 'late', 1, offset, '', EOF));
    const expected = (await import('node:crypto')).createHash('sha256').update(data).digest('hex');
    expect((await readAll(c, 'late')).data.toString()).toContain(expected);
  });

  it('says that input is at its end when the program has closed it, or never had any', async () => {
    await startExec(c, 'closed', sh('exec <&-; echo closed; sleep 5', { stdin: true }));
    await eventually(async () => (await stateOf(c, 'closed')).stdoutSize > 0 || undefined);
    expect((await ack(stdin(c, 'closed', 1, 0, 'x'))).ended).toBe(true);
    await startExec(c, 'none', sh('cat; sleep 5'));
    await expect(ack(stdin(c, 'none', 1, 0, 'x'))).rejects.toMatchObject({ code: E.NO_STDIN });
  });

  it('gives a terminal: echo, size, resize in the record, Ctrl-C', async () => {
    await startExec(c, 'tty', {
      argv: [
        '/bin/sh',
        '-c',
        'stty size; tty; while read l; do echo "<$l>"; stty size; done; echo asleep; exec sleep 100',
      ],
      env: [`PATH=${process.env.PATH}`, 'TERM=xterm'],
      pty: [91, 33],
    });
    const exchange = c.request(T.READ, readBody('tty', {}));
    const seen = { text: '' };
    await until(exchange, seen, /33 91\r\n\/dev\/pts\/\d+\r\n/);
    await ack(stdin(c, 'tty', 1, 0, 'typed\r'));
    await until(exchange, seen, /typed\r\n<typed>\r\n33 91\r\n/);
    await c.request(T.RESIZE, new Body().bytes('tty').u16(120).u16(40)).expect(T.OK);
    await ack(stdin(c, 'tty', 1, 6, 'again\r'));
    await until(exchange, seen, /\[2621560\][\s\S]*40 120/);
    await ack(stdin(c, 'tty', 1, 12, '', EOF));
    await ack(stdin(c, 'tty', 1, 12, '', EOF));
    // A shell that is interrupted while its child ends by itself takes no notice.
    await until(exchange, seen, /asleep\r\n/);
    await ack(stdin(c, 'tty', 1, 13, '\x03'));
    const { exec, output } = await readAll(c, 'tty');
    expect([exec.state, exec.code, exec.stderrSize]).toEqual([state.signaled, 2, 0]);
    const resizes = output.filter(({ kind }) => kind === 3);
    expect(resizes.map(({ streamOffset }) => streamOffset)).toEqual([120n + (40n << 16n)]);
    const notTty = await run(c, 'pipe', sh('tty; exit 0'));
    expect(notTty.data.toString()).toBe('not a tty\n');
  });

  it('keeps all of a terminal’s output that ends with the program', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `end-${i}`);
    const expected = Array.from({ length: 20_000 }, (_, i) => `${i + 1}\r\n`).join('');
    const ends = await Promise.all(
      names.map((name) =>
        run(c, name, { argv: ['seq', '20000'], env: [`PATH=${process.env.PATH}`], pty: [80, 24] }),
      ),
    );
    for (const { data, exec } of ends) {
      expect(data.toString() === expected).toBe(true);
      expect([exec.state, exec.code, exec.stdoutSize]).toEqual([state.exited, 0, expected.length]);
    }
  }, 60_000);

  it('hangs up a terminal when its program ends, whatever is left in the background', async () => {
    const script = 'sleep 1000 & echo $!; (trap "" HUP; exec sleep 1000) & echo $!; echo done';
    const { data, exec } = await run(c, 'hang', sh(script, { pty: [80, 24] }));
    for (const pid of data.toString().match(/\d+/g) ?? []) endIfThere(Number(pid));
    expect([exec.state, exec.code]).toEqual([state.exited, 0]);
    expect(data.toString()).toMatch(/^\d+\r\n\d+\r\ndone\r\n$/);
  });

  it('runs an interactive shell with job control', async () => {
    await startExec(c, 'shell', {
      argv: ['/bin/bash', '--norc', '-i'],
      env: [`PATH=${process.env.PATH}`, 'PS1=> ', 'TERM=dumb'],
      pty: [80, 24],
    });
    const exchange = c.request(T.READ, readBody('shell', {}));
    const seen = { text: '' };
    await until(exchange, seen, /> $/);
    let offset = 0;
    const type = async (text: string) => {
      offset = (await ack(stdin(c, 'shell', 5, offset, text))).next;
    };
    const inForeground = () =>
      eventually(async () => {
        const { data } = await run(c, `ps-${Math.random()}`, sh('ps -e -o stat= -o args='));
        return /S\+ +sleep 1000/.test(data.toString()) || undefined;
      });
    await type('sleep 1000\r');
    await until(exchange, seen, /sleep 1000\r\n/);
    await inForeground();
    await type('\x1a');
    await until(exchange, seen, /Stopped/);
    await type('fg\r');
    await until(exchange, seen, /> fg\r\nsleep 1000\r\n/);
    // The shell says so before it hands the terminal over.
    await inForeground();
    await type('\x03');
    await until(exchange, seen, /\^C\r\n> $/);
    await type('exit 7\r');
    const { exec } = await readAll(c, 'shell');
    expect([exec.state, exec.code]).toEqual([state.exited, 7]);
    expect(seen.text).not.toMatch(/no job control/);
  });
});

/** What a test left in the background outlives a supervisor that is not PID 1. */
function endIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code !== 'ESRCH') throw fault;
  }
}
