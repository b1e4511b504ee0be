import { createServer, type Server } from 'node:net';
import { Body, type Bytes } from './bytes';
import { type Connection, E, type Exchange, outputOf, T } from './client';
import { builds, make, readBody, run, Sandbox, sh, startExec } from './harness';

const portOf = (body: Bytes) => ({
  port: body.u16(),
  open: body.u8() === 1,
  families: body.u8(),
  loopbackOnly: body.u8() === 1,
});

async function listen(server: Server, host: string): Promise<number> {
  server.listen(0, host);
  await new Promise((done) => server.once('listening', done));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** Other programs on this machine open and close ports too: waits for the one that matters. */
async function until(exchange: Exchange, port: number, open: boolean) {
  for (;;) {
    const found = portOf(await exchange.expect(T.PORT));
    if (found.port === port && found.open === open) return found;
  }
}

describe.each(builds)('ports and tunnels (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  const servers: Server[] = [];
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
  });
  afterEach(async () => {
    await sandbox.end();
    await Promise.all(
      servers.splice(0).map((server) => new Promise((done) => server.close(() => done(0)))),
    );
  });
  const serve = (onConnection: Parameters<typeof createServer>[1] & object) => {
    const server = createServer({ allowHalfOpen: true }, onConnection);
    servers.push(server);
    return server;
  };

  it('lists listening ports and tells when one opens or closes, IPv4 and IPv6', async () => {
    const first = await listen(
      serve(() => undefined),
      '127.0.0.1',
    );
    const others = await Promise.all(
      [1, 2, 3].map(() =>
        listen(
          serve(() => undefined),
          '127.0.0.1',
        ),
      ),
    );
    const once = c.request(T.PORTS, new Body().u8(0));
    const listed = [];
    for (let frame = await once.next(); frame.type === T.PORT; frame = await once.next())
      listed.push(portOf(frame.body));
    expect(listed.find(({ port }) => port === first)).toEqual({
      port: first,
      open: true,
      families: 1,
      loopbackOnly: true,
    });
    expect(listed.map(({ port }) => port)).toEqual(expect.arrayContaining(others));
    const follow = c.request(T.PORTS, new Body().u8(1));
    while ((await follow.next()).type !== T.OK);
    const server = createServer();
    const second = await listen(server, '::');
    expect(await until(follow, second, true)).toMatchObject({ loopbackOnly: false });
    await new Promise((done) => server.close(done));
    await until(follow, second, false);
    const v6 = serve(() => undefined);
    const third = await listen(v6, '::1');
    expect(await until(follow, third, true)).toMatchObject({ families: 2, loopbackOnly: true });
    follow.send(T.CLOSE);
    while ((await follow.next()).type !== T.CLOSED);
  });

  describe('in a network that it shares', () => {
    const serving = (port: number, host = '127.0.0.1') =>
      sh(
        `exec python3 -c '
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("${host}", ${port})); s.listen(); print(s.getsockname()[1], flush=True)
while True: s.accept()[0].sendall(b"mine")'`,
      );
    /** The port that the program printed. */
    async function served(c: Connection, execId: string, start: ReturnType<typeof sh>) {
      await startExec(c, execId, start);
      const said = c.request(T.READ, readBody(execId, {}));
      const port = Number(outputOf((await said.next()).body).data);
      expect(port).toBeGreaterThan(0);
      return port;
    }
    const dial = (port: number) => c.request(T.DIAL, new Body().u16(port).u32(1000)).next();
    const refusal = { code: E.SYSTEM, message: expect.stringContaining('of this sandbox') };

    it('tells of what its own processes listen on, and dials nothing else', async () => {
      await sandbox.end();
      sandbox = new Sandbox(binary);
      c = await sandbox.start('--own-ports');
      const theirs = await listen(
        serve((socket) => socket.end('theirs')),
        '127.0.0.1',
      );
      const mine = await served(c, 'mine', serving(0));
      const once = c.request(T.PORTS, new Body().u8(0));
      const listed = [];
      for (let frame = await once.next(); frame.type === T.PORT; frame = await once.next())
        listed.push(portOf(frame.body).port);
      expect(listed).toEqual([mine]);
      expect((await dial(mine)).type).toBe(T.ACCEPTED);
      await expect(dial(theirs)).rejects.toMatchObject(refusal);
      // Two listen on it, at different addresses: who would answer is not for the sandbox to choose.
      await served(c, 'beside', serving(theirs, '127.0.0.9'));
      await expect(dial(theirs)).rejects.toMatchObject(refusal);
    });
  });

  async function tunnel(port: number, data: Buffer): Promise<Buffer> {
    const exchange = c.request(T.DIAL, new Body().u16(port).u32(100_000));
    let credit = (await exchange.expect(T.ACCEPTED)).u32();
    const back: Buffer[] = [];
    let sent = 0;
    let ended = false;
    for (;;) {
      while (credit > 0 && sent < data.length) {
        const part = data.subarray(sent, sent + Math.min(credit, 65536));
        exchange.send(T.DATA, new Body().bytes(part));
        credit -= part.length;
        sent += part.length;
      }
      if (sent === data.length && !ended) {
        exchange.send(T.END);
        ended = true;
      }
      const frame = await exchange.next();
      if (frame.type === T.OK) return Buffer.concat(back);
      if (frame.type === T.CREDIT) credit += frame.body.u32();
      if (frame.type !== T.DATA) continue;
      const part = frame.body.bytes();
      back.push(part);
      exchange.send(T.CREDIT, new Body().u32(part.length));
    }
  }

  it('tunnels bytes both ways to a loopback port, exactly, with half-close', async () => {
    for (const host of ['127.0.0.1', '::1']) {
      const echo = await listen(
        serve((socket) => socket.pipe(socket)),
        host,
      );
      const data = Buffer.from(Array.from({ length: 2_000_003 }, (_, i) => (i * 17) % 253));
      expect((await tunnel(echo, data)).equals(data)).toBe(true);
    }
  });

  it('holds a tunnel whose client gives no credit without growing or stopping others', async () => {
    let written = 0;
    const flood = await listen(
      serve((socket) => {
        const chunk = Buffer.alloc(65536);
        const more = () => {
          while (socket.write(chunk)) written += chunk.length;
        };
        socket.on('drain', more).on('error', () => undefined);
        more();
      }),
      '127.0.0.1',
    );
    const stuck = c.request(T.DIAL, new Body().u16(flood).u32(10));
    await stuck.expect(T.ACCEPTED);
    expect((await stuck.expect(T.DATA)).bytes()).toHaveLength(10);
    expect((await run(c, 'other', sh('echo on'))).data.toString()).toBe('on\n');
    expect(written).toBeLessThan(64 << 20);
    stuck.send(T.CLOSE);
    await stuck.expect(T.CLOSED);
  });

  it('refuses a port where nobody listens, and port 0', async () => {
    const server = createServer();
    const port = await listen(server, '127.0.0.1');
    await new Promise((done) => server.close(done));
    const dial = (to: number) => c.request(T.DIAL, new Body().u16(to).u32(10)).next();
    await expect(dial(port)).rejects.toMatchObject({ code: E.SYSTEM, errno: 111 });
    await expect(dial(0)).rejects.toMatchObject({ code: E.INVALID });
  });

  it('reports a reset as an error, not as the end', async () => {
    const rude = await listen(
      serve((socket) => socket.once('data', () => socket.resetAndDestroy())),
      '127.0.0.1',
    );
    const exchange = c.request(T.DIAL, new Body().u16(rude).u32(1000));
    await exchange.expect(T.ACCEPTED);
    exchange.send(T.DATA, new Body().bytes('hello'));
    const outcome = async () => {
      for (;;) {
        const frame = await exchange.next();
        if (frame.type !== T.CREDIT) return frame.type;
      }
    };
    await expect(outcome()).rejects.toMatchObject({ code: E.SYSTEM, errno: 104 });
  });

  it('gives figures', async () => {
    await run(c, 'burn', sh('i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done'));
    await startExec(c, 'alive', sh('sleep 100'));
    const body = await c.request(T.FIGURES).expect(T.FIGURES_ARE);
    const figures = new Map<number, number>();
    for (let n = body.u16(); n > 0; n--) figures.set(body.u16(), Number(body.u64()));
    for (const key of [1, 2, 6, 8, 9, 10, 11, 13]) expect(figures.get(key)).toBeGreaterThan(0);
  });
});
