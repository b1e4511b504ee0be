import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { until } from '@vmux/testing';
import { type WebSocket, WebSocketServer } from 'ws';
import { Terminal, type TerminalItem, Vmux } from '../src/index';

const HELLO = 1;
const TAKEN = 5;
const ERROR = 8;
const INPUT = 17;

const json = (type: number, body: object): Buffer =>
  Buffer.concat([Buffer.from([type]), Buffer.from(JSON.stringify(body))]);

/** The gateway's end of a terminal, with a sandbox that takes every number once, or refuses to. */
class FarEnd {
  /** What comes in is refused with these, one after the other, before anything is taken. */
  readonly refusals: string[] = [];
  readonly offsets: number[] = [];
  typed = '';
  private readonly server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  readonly listening = once(this.server, 'listening');

  constructor() {
    this.server.on('connection', (socket) => {
      socket.send(json(HELLO, { protocol: 1, mode: 'type', writer: 1 }));
      socket.on('message', (frame: Buffer) => this.receive(socket, frame));
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    for (const socket of this.server.clients) socket.terminate();
    await new Promise((done) => this.server.close(done));
  }

  private receive(socket: WebSocket, frame: Buffer): void {
    if (frame[0] !== INPUT) return;
    const offset = Number(frame.readBigUInt64LE(1));
    this.offsets.push(offset);
    const isGap = offset > this.typed.length;
    const code = this.refusals.shift() ?? (isGap ? 'input_gap' : null);
    if (code) {
      const details = code === 'input_gap' ? { expected: this.typed.length } : {};
      socket.send(json(ERROR, { code, message: code, details, fatal: false }));
      return;
    }
    this.typed += frame.toString('utf8', 9 + this.typed.length - offset);
    const taken = Buffer.alloc(9);
    taken.writeUInt8(TAKEN, 0);
    taken.writeBigUInt64LE(BigInt(this.typed.length), 1);
    socket.send(taken);
  }
}

describe('what is typed into an attached terminal', () => {
  let end: FarEnd;
  let terminal: Terminal;
  let items: TerminalItem[];
  let shown: Promise<void>;

  beforeEach(async () => {
    end = new FarEnd();
    await end.listening;
    items = [];
  });
  afterEach(async () => {
    terminal.detach();
    await shown;
    await end.close();
  });

  const attach = async (retryForMs = 30_000) => {
    terminal = new Terminal(new Vmux({ url: end.url, apiKey: 'key', retryForMs }), '/attach');
    shown = (async () => {
      for await (const item of terminal) items.push(item);
    })();
    await until(() => items.some(({ kind }) => kind === 'hello'));
  };
  const refused = () => items.flatMap((each) => (each.kind === 'refused' ? [each.error.code] : []));

  it('is sent again, as it was, after a refusal that passes', async () => {
    end.refusals.push('tunnel_broken', 'runner_unreachable');
    await attach();
    await terminal.type('one ');
    await until(() => end.typed === 'one ');
    await terminal.type('two');
    await until(() => end.typed === 'one two');
    expect(end.offsets).toEqual([0, 0, 0, 4]);
    expect(refused()).toEqual([]);
  });

  it('is taken in order when more was under way behind what was refused', async () => {
    end.refusals.push('tunnel_broken');
    await attach();
    for (const word of ['one ', 'two ', 'three ']) await terminal.type(word);
    await until(() => end.typed === 'one two three ');
    expect(refused()).toEqual([]);
  });

  it('goes on where the sandbox says that it is, though the answer that said so was lost', async () => {
    await attach();
    end.typed = 'one';
    end.refusals.push('tunnel_broken');
    await terminal.type('one');
    await terminal.type(' two');
    await until(() => end.typed === 'one two');
    expect(refused()).toEqual([]);
  });

  it('is told to be refused when it cannot pass, and comes with what is typed next', async () => {
    end.refusals.push('stale_writer');
    await attach();
    await terminal.type('one ');
    await until(() => refused().length === 1);
    expect(end.typed).toBe('');
    await terminal.type('two');
    await until(() => end.typed === 'one two');
    expect(refused()).toEqual(['stale_writer']);
  });

  it('is told to be refused once it was tried for as long as everything else is', async () => {
    end.refusals.push('tunnel_broken');
    await attach(0);
    await terminal.type('one');
    await until(() => refused().length === 1);
    expect(end.offsets).toEqual([0]);
  });
});
