import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, renameSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { Body } from './bytes';
import { Connection, T } from './client';
import { builds, make, Sandbox } from './harness';

/** Writes as no client of ours does: messages of every size, in fragments, with pings between them. */
class OddSocket extends Duplex {
  pongs = 0;
  private sent = 0;
  constructor(private readonly socket: WebSocket) {
    super();
    socket.on('message', (data: Buffer) => this.push(data));
    socket.on('close', () => this.destroy());
    socket.on('pong', () => {
      this.pongs += 1;
    });
  }
  override _read(): void {}
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const sizes = [1, 125, 126, 127, 4_099, 65_535, 65_536, 70_001];
    let rest = chunk;
    while (rest.length > 0) {
      const piece = rest.subarray(0, sizes[this.sent % sizes.length]);
      rest = rest.subarray(piece.length);
      this.socket.send(piece, { fin: rest.length === 0 });
      if (this.sent++ % 3 === 0) this.socket.ping(randomBytes(this.sent % 126));
    }
    done();
  }
  override _destroy(fault: Error | null, done: (fault: Error | null) => void): void {
    this.socket.terminate();
    done(fault);
  }
}

describe.each(builds)('a bridge (%s)', (_name, target, binary) => {
  const secret = randomBytes(32).toString('hex');
  let sandbox: Sandbox;
  let c: Connection;
  let said = '';
  const bridges: ChildProcess[] = [];
  const servers: Server[] = [];
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
    said = '';
  });
  afterEach(async () => {
    for (const bridge of bridges.splice(0)) await ended(bridge, 'SIGTERM');
    for (const server of servers.splice(0)) server.close();
    await sandbox.end();
    expect(said).toBe('');
  });

  const ended = async (bridge: ChildProcess, signal?: NodeJS.Signals) => {
    if (bridge.exitCode === null && bridge.signalCode === null) {
      const exit = once(bridge, 'exit');
      if (signal) bridge.kill(signal);
      await exit;
    }
    return bridge.exitCode;
  };
  const bridged = async (given = secret) => {
    const bridge = spawn(binary, ['bridge', `--socket=${sandbox.socket}`], { stdio: 'pipe' });
    bridges.push(bridge);
    bridge.stderr.on('data', (text) => {
      said += text;
    });
    bridge.stdin.write(`${given}\n`);
    const [line] = await once(bridge.stdout, 'data');
    return { bridge, port: Number(line) };
  };
  const opened = async (port: number) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/any?thing`, {
      headers: { 'X-Vmux-Bridge': secret },
      perMessageDeflate: false,
    });
    const odd = new OddSocket(socket);
    await once(socket, 'open');
    return odd;
  };
  const listedPorts = async () => {
    const asked = c.request(T.PORTS, new Body().u8(0));
    const listed = [];
    for (let frame = await asked.next(); frame.type === T.PORT; frame = await asked.next())
      listed.push(frame.body.u16());
    return listed;
  };

  it('carries a pipe to the supervisor in a WebSocket, exactly, whatever its frames', async () => {
    const echo = createServer((socket) => socket.pipe(socket));
    servers.push(echo);
    await once(echo.listen(0, '127.0.0.1'), 'listening');
    const { port: echoPort } = echo.address() as { port: number };
    const { port } = await bridged();
    const odd = await opened(port);
    const far = new Connection(odd);
    await far.greet(sandbox.epoch, sandbox.instance);
    const data = randomBytes(1_500_007);
    const dialled = far.request(T.DIAL, new Body().u16(echoPort).u32(data.length));
    let credit = (await dialled.expect(T.ACCEPTED)).u32();
    const back: Buffer[] = [];
    for (let sent = 0, got = 0; got < data.length; ) {
      while (credit > 0 && sent < data.length) {
        const part = data.subarray(sent, sent + Math.min(credit, 65_536));
        dialled.send(T.DATA, new Body().bytes(part));
        credit -= part.length;
        sent += part.length;
      }
      const frame = await dialled.next();
      if (frame.type === T.CREDIT) credit += frame.body.u32();
      if (frame.type !== T.DATA) continue;
      const part = frame.body.bytes();
      back.push(part);
      got += part.length;
    }
    expect(Buffer.concat(back).equals(data)).toBe(true);
    expect(odd.pongs).toBeGreaterThan(0);
    await far.close();
  });

  it('is not among the ports of the sandbox, and leaves nothing when either end is over', async () => {
    const { bridge, port } = await bridged();
    expect(await listedPorts()).not.toContain(port);
    const odd = await opened(port);
    expect(await listedPorts()).not.toContain(port);
    expect(existsSync(`${sandbox.socket}.${port}`)).toBe(true);
    odd.destroy();
    expect(await ended(bridge)).toBe(0);
    expect(existsSync(`${sandbox.socket}.${port}`)).toBe(false);
    const other = await bridged();
    const closed = once(await opened(other.port), 'close');
    await sandbox.kill();
    await closed;
    expect(await ended(other.bridge)).toBe(0);
  });

  it('leaves its port to others when it is killed', async () => {
    const { bridge, port } = await bridged();
    await ended(bridge, 'SIGKILL');
    const server = createServer();
    servers.push(server);
    await once(server.listen(port, '127.0.0.1'), 'listening');
    expect(await listedPorts()).toContain(port);
  });

  it('is not taken for what listened on its port before', async () => {
    const watching = c.request(T.PORTS, new Body().u8(1));
    const told = async (wanted: number) => {
      for (;;) {
        const { type, body } = await watching.next();
        if (type === T.PORT && body.u16() === wanted) return body.u8();
      }
    };
    const before = createServer();
    await once(before.listen(0, '127.0.0.1'), 'listening');
    const { port } = before.address() as { port: number };
    await told(port);
    before.close();
    await told(port);
    // The bridge takes any port: here it is made to have that one.
    const fixed = await bridged();
    renameSync(`${sandbox.socket}.${fixed.port}`, `${sandbox.socket}.${port}`);
    const stranger = createServer();
    servers.push(stranger);
    await once(stranger.listen(port, '127.0.0.1'), 'listening');
    expect(await listedPorts()).not.toContain(port);
  });

  it('lets nobody in without its secret, and nothing that is no WebSocket', async () => {
    const { port } = await bridged();
    const asked = async (head: string) => {
      const socket = connect(port, '127.0.0.1');
      let answer = '';
      socket.on('data', (text) => {
        answer += text;
      });
      // It may be reset: a fault is an answer like another.
      socket.on('error', () => undefined);
      socket.write(head);
      await new Promise((resolve) => socket.once('close', resolve));
      return answer.split('\r\n')[0];
    };
    const upgrade = 'Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13';
    const key = `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`;
    const forbidden = 'HTTP/1.1 403 Forbidden';
    const get = 'GET / HTTP/1.1';
    expect(await asked(`${get}\r\n${upgrade}\r\n${key}\r\n\r\n`)).toBe(forbidden);
    for (const wrong of ['', 'x', secret.slice(1), `${secret}0`, secret.toUpperCase()])
      expect(await asked(`${get}\r\n${upgrade}\r\n${key}\r\nX-Vmux-Bridge: ${wrong}\r\n\r\n`)).toBe(
        forbidden,
      );
    expect(await asked(`${get}\r\nX-Vmux-Bridge: ${secret}\r\n\r\n`)).toBe(
      'HTTP/1.1 400 Bad Request',
    );
    expect(await asked(`${get}\r\nX-Pad: ${'a'.repeat(20_000)}\r\n\r\n`)).toBe('');
    const far = new Connection(await opened(port));
    await far.greet(sandbox.epoch, sandbox.instance);
    // It is for one alone.
    expect(await asked(`${get}\r\n${upgrade}\r\n${key}\r\nX-Vmux-Bridge: ${secret}\r\n\r\n`)).toBe(
      '',
    );
    await far.close();
  });

  it('ends the connection of a client that breaks the rules of WebSockets', async () => {
    for (const frame of [
      [0x82, 0x01, 0x00],
      [0x83, 0x80, 0, 0, 0, 0],
      [0x89, 0xfe, 0x01, 0x00, 0, 0, 0, 0],
      [0xc2, 0x80, 0, 0, 0, 0],
      [0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]) {
      const { bridge, port } = await bridged();
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      const key = randomBytes(16).toString('base64');
      socket.write(
        `GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\nX-Vmux-Bridge: ${secret}\r\n\r\n`,
      );
      const [head] = await once(socket, 'data');
      expect(String(head)).toMatch(/^HTTP\/1.1 101 /);
      socket.write(Buffer.from(frame));
      expect(await ended(bridge)).toBe(0);
      socket.destroy();
    }
  });

  it('wants a secret that cannot be guessed', async () => {
    const bridge = spawn(binary, ['bridge', `--socket=${sandbox.socket}`], { stdio: 'pipe' });
    bridge.stdin.end('short\n');
    expect(await ended(bridge)).toBe(2);
  });
});
