import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Body } from './bytes';
import { Connection, E, T } from './client';
import { builds, make, run, Sandbox, sh, startBody, startExec } from './harness';

describe.each(builds)('the protocol (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
  });
  afterEach(() => sandbox.end());

  /** What the connection is told before it is closed. */
  async function complaint(connection: Connection): Promise<number> {
    const code = await connection.control.next().then(
      (frame) => -frame.type,
      (error: { code?: number }) => error.code ?? -1,
    );
    await connection.closed;
    return code;
  }

  it('says who it is', () => {
    expect(c.hello).toMatchObject({ version: 1, flags: 56, epoch: 7n, instance: sandbox.instance });
  });

  it('closes a connection that sends nonsense, tells it so, and leaves the others alone', async () => {
    await startExec(c, 'steady', sh('sleep 0.5; echo steady'));
    const frames: ((connection: Connection) => void)[] = [
      (x) => x.send(0xff, 1),
      (x) => x.send(T.START, 0, startBody('zero-id', sh('true'))),
      (x) => x.send(T.START, 1, new Body().bytes('short')),
      (x) => x.send(T.STATE, 1, new Body().bytes('x').u8(0)),
      (x) => x.send(T.STATE, 1, new Body().u32(0xffffffff)),
      (x) => x.send(T.EXEC, 1),
      (x) => x.send(T.HELLO, 0),
      (x) => x.socket.write(Buffer.from([0, 0, 0, 0])),
      (x) => x.socket.write(Buffer.from([1, 0, 16, 0, 5])),
      (x) => x.socket.write(Buffer.from([255, 255, 255, 255])),
      (x) => {
        x.send(T.WATCH, 9, new Body().u8(1));
        x.send(T.WATCH, 9, new Body().u8(1));
      },
      (x) => x.send(T.WATCH, 9, new Body().u8(2)),
    ];
    for (const send of frames) {
      const hostile = await sandbox.connect();
      send(hostile);
      expect(await complaint(hostile)).toBe(E.MALFORMED);
    }
    expect((await run(c, 'after', sh('exit 0'))).exec.code).toBe(0);
  });

  it('takes nothing before the greeting', async () => {
    const rude = new Connection(connect(sandbox.socket));
    await rude.control.expect(T.HELLO);
    rude.send(T.START, 1, startBody('sneaky', sh('true')));
    expect(await complaint(rude)).toBe(E.MALFORMED);
    const asked = c.request(T.STATE, new Body().bytes('sneaky'));
    await expect(asked.expect(T.EXEC)).rejects.toMatchObject({ code: E.NOT_FOUND });
  });

  it('closes a connection that sends more than its credit', async () => {
    const server = createServer((socket) => socket.pause().on('error', () => undefined));
    server.listen(0, '127.0.0.1');
    await new Promise((done) => server.once('listening', done));
    const greedy = await sandbox.connect();
    const { port } = server.address() as { port: number };
    const exchange = greedy.request(T.DIAL, new Body().u16(port).u32(0));
    await exchange.expect(T.ACCEPTED);
    for (let i = 0; i < 400; i++) exchange.send(T.DATA, new Body().bytes(Buffer.alloc(65536)));
    expect(await complaint(greedy)).toBe(E.MALFORMED);
    server.close();
  });

  it('takes frames in pieces of any size, and up to 1 MiB', async () => {
    const value = 'v'.repeat(100_000);
    const env = Array.from({ length: 9 }, (_, i) => `V${i}=${value}`);
    const payload = startBody('large', {
      argv: ['/bin/sh', '-c', 'printf %s $V8 | wc -c'],
      env,
    }).toBuffer();
    const head = Buffer.alloc(9);
    head.writeUInt32LE(payload.length + 5);
    head.writeUInt8(T.START, 4);
    head.writeUInt32LE(77, 5);
    const frame = Buffer.concat([head, payload]);
    for (let at = 0; at < frame.length; ) {
      const size = at < 300 ? 1 : 70_001;
      c.socket.write(frame.subarray(at, at + size));
      at += size;
      if (at < 300) await new Promise((done) => setImmediate(done));
    }
    const read = await run(c, 'large', sh('never started again'));
    expect(read.data.toString()).toBe('100000\n');
  });

  it('answers CLOSE always, and lets the id be used again', async () => {
    for (let round = 0; round < 3; round++) {
      c.send(T.WATCH, 1000, new Body().u8(1));
      c.send(T.CLOSE, 1000);
      c.send(T.CLOSE, 1000);
    }
    c.send(T.CREDIT, 1000, new Body().u32(5));
    c.send(T.DATA, 1000, new Body().bytes('ignored'));
    expect((await run(c, 'on', sh('exit 0'))).exec.code).toBe(0);
  });

  it('refuses more than 1024 open requests on one connection', async () => {
    const many = Array.from({ length: 1030 }, () => c.request(T.WATCH, new Body().u8(1)));
    const outcomes = await Promise.all(
      many.map((exchange) =>
        exchange.next().then(
          () => 0,
          (error: { code: number }) => error.code,
        ),
      ),
    );
    expect(outcomes.filter((code) => code === E.LIMIT)).toHaveLength(6);
  });
});

it('survives 8000 fuzzed connections under the address and undefined-behaviour sanitizers', () => {
  make('fuzz');
  const fuzz = join(dirname(builds[0]?.[2] as string), 'vmux-supervisor-fuzz');
  for (const seed of ['1', '2']) {
    const folder = mkdtempSync(join(tmpdir(), 'vmux-fuzz-'));
    try {
      const done = spawnSync(fuzz, [folder, seed, '4000'], { encoding: 'utf8' });
      expect([done.stderr.slice(0, 4000), done.stdout, done.status]).toEqual([
        '',
        expect.stringMatching(/^4000 runs/),
        0,
      ]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}, 180_000);
