import { once } from 'node:events';
import { get } from 'node:http';
import { connect } from 'node:net';
import { releaseAll, releaseLater, seededRandom, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import { decode, encode, encodeCredit, encodeJson, MAX_STREAMS, TYPE } from '../src/frames';
import {
  type Serve,
  StreamCancelled,
  startTunnelServer,
  TunnelBroken,
  TunnelConnection,
  TunnelRefused,
  Tunnels,
  TunnelUnreachable,
  WINDOW_BYTES,
} from '../src/index';

const started = async (serve: Serve) => {
  const faults: unknown[] = [];
  const server = await startTunnelServer({
    host: '127.0.0.1',
    port: 0,
    serve,
    onFault: (fault) => faults.push(fault),
  });
  releaseLater(() => server.close());
  return { server, faults };
};
const dialled = async (address: { url: string; token: string }) => {
  const connection = await TunnelConnection.dial(address);
  releaseLater(() => connection.close());
  return connection;
};
const echo: Serve = async (request, stream) => {
  let bytes = 0;
  for await (const piece of stream.receive()) {
    bytes += piece.length;
    await stream.send(piece);
  }
  return { request, bytes };
};
const collected = async (pieces: AsyncIterable<Buffer>) => {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
};

afterEach(releaseAll);

describe('a tunnel', () => {
  it('carries many streams at once, each byte for byte, over one connection', async () => {
    const { server } = await started(echo);
    const connection = await dialled(server);
    const random = seededRandom(7);
    const exchanges = Array.from({ length: 20 }, async (_, number) => {
      const sent = random.bytes(1 + random.integer(900_000));
      const stream = connection.open({ number });
      const received = collected(stream.receive());
      for (let from = 0; from < sent.length; ) {
        const to = from + 1 + random.integer(200_000);
        await stream.send(sent.subarray(from, to));
        from = to;
      }
      stream.end();
      expect((await received).equals(sent)).toBe(true);
      expect(await stream.result).toEqual({ request: { number }, bytes: sent.length });
    });
    await Promise.all(exchanges);
  });

  it('lets no stream send more than a window ahead of its reader, and holds up no other', async () => {
    let taken = 0;
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { server } = await started(async (request, stream) => {
      if (request === 'quick') return collected(stream.receive()).then(String);
      await released;
      taken = (await collected(stream.receive())).length;
      return null;
    });
    const connection = await dialled(server);
    const slow = connection.open('slow');
    let sent = 0;
    const sending = (async () => {
      for (; sent < 8; sent += 1) await slow.send(Buffer.alloc(WINDOW_BYTES / 4));
      slow.end();
    })();
    await until(() => sent === 4);
    const quick = connection.open('quick');
    await quick.send(Buffer.from('passes by'));
    quick.end();
    expect(await quick.result).toBe('passes by');
    expect(sent).toBe(4);
    release();
    await sending;
    await slow.result;
    expect(taken).toBe(2 * WINDOW_BYTES);
  });

  it('tells a refusal with its code and facts, and no other fault’s words', async () => {
    const { server, faults } = await started(async (request) => {
      if (request === 'gap') throw new TunnelRefused('input_gap', 'missing', { expected: 5 });
      throw new Error('the password is hunter2');
    });
    const connection = await dialled(server);
    const gap = connection.open('gap').result;
    await expect(gap).rejects.toMatchObject({ code: 'input_gap', facts: { expected: 5 } });
    const inner = await connection.open('other').result.catch(String);
    expect(inner).toBe('TunnelRefused: something went wrong in the runner');
    expect(faults).toHaveLength(1);
  });

  it('never shows a cut stream as an end, to either side', async () => {
    const seen: unknown[] = [];
    const { server } = await started(async (_request, stream) => {
      await stream.send(Buffer.from('first'));
      await collected(stream.receive()).then(
        () => seen.push('an end'),
        (fault) => seen.push(fault),
      );
      return null;
    });
    const connection = await dialled(server);
    const given = connection.open(1);
    await given.send(Buffer.from('half'));
    await given.receive().next();
    given.cancel();
    await expect(given.result).rejects.toThrow(StreamCancelled);
    await until(() => seen.length === 1);
    expect(seen[0]).toBeInstanceOf(StreamCancelled);

    const cut = connection.open(2);
    const pieces = cut.receive();
    await pieces.next();
    await server.close();
    await expect(pieces.next()).rejects.toThrow(TunnelBroken);
    await expect(cut.result).rejects.toThrow(TunnelBroken);
    await until(() => seen.length === 2);
    expect(seen[1]).toBeInstanceOf(Error);
  });

  it('takes a bounded number of streams at once', async () => {
    const { server } = await started((_request, stream) => once(stream.signal, 'abort'));
    const connection = await dialled(server);
    for (let open = 0; open < MAX_STREAMS; open += 1) connection.open(open);
    expect(() => connection.open('one more')).toThrow(TunnelUnreachable);
  });
});

describe('one connection per runner', () => {
  it('is shared by its streams, and made again by the next call after it broke', async () => {
    const first = await started(echo);
    const tunnels = new Tunnels();
    releaseLater(() => tunnels.close());
    const call = async (address: { url: string; token: string }, request: string) => {
      const stream = await tunnels.open('local', address, request);
      stream.end();
      return stream.result;
    };
    await Promise.all(['a', 'b', 'c'].map((each) => call(first.server, each)));
    await first.server.close();
    await until(() =>
      call(first.server, 'd').then(
        () => false,
        (fault) => fault instanceof TunnelUnreachable,
      ),
    );
    const second = await started(echo);
    expect(await call(second.server, 'e')).toEqual({ request: 'e', bytes: 0 });
  });
});

describe('a stranger', () => {
  const status = (url: string, headers: Record<string, string>) =>
    new Promise<number | undefined>((resolve, reject) => {
      const socket = new WebSocket(url, { headers });
      socket.on('open', () => resolve(101));
      socket.on('unexpected-response', (_request, response) => {
        socket.terminate();
        resolve(response.statusCode);
      });
      socket.on('error', reject);
    });

  it('is refused without the token, with a wrong one, and on another path', async () => {
    const { server } = await started(echo);
    const authorization = `Bearer ${server.token}`;
    expect(server.token.length).toBeGreaterThanOrEqual(22);
    expect(await status(server.url, {})).toBe(401);
    expect(await status(server.url, { authorization: 'Bearer ' })).toBe(401);
    expect(await status(server.url, { authorization: authorization.slice(0, -1) })).toBe(401);
    expect(await status(server.url, { authorization: `${authorization}x` })).toBe(401);
    expect(await status(`${server.url}/more`, { authorization })).toBe(404);
    const wrong = TunnelConnection.dial({ ...server, token: 'guess' });
    await expect(wrong).rejects.toThrow(TunnelUnreachable);
    const plain = await new Promise((resolve) =>
      get(server.url.replace('ws:', 'http:'), (response) => resolve(response.statusCode)),
    );
    expect(plain).toBe(426);
  });

  it('gets another token from every server', async () => {
    const [one, other] = [await started(echo), await started(echo)];
    expect(one.server.token).not.toBe(other.server.token);
  });

  it('sends what is no HTTP and disturbs nobody', async () => {
    const { server } = await started(echo);
    const connection = await dialled(server);
    const noise = connect(Number(new URL(server.url).port), '127.0.0.1');
    noise.on('error', () => undefined);
    noise.resume();
    noise.write(seededRandom(1).bytes(10_000));
    await once(noise, 'close');
    const stream = connection.open('still');
    stream.end();
    expect(await stream.result).toEqual({ request: 'still', bytes: 0 });
  });
});

describe('a gateway that breaks the protocol', () => {
  const data = (stream: number, size: number) => encode(TYPE.data, stream, Buffer.alloc(size));
  const opened = encodeJson(TYPE.open, 1, 'x');
  const cases: readonly [string, readonly (Buffer | string)[]][] = [
    ['sends text', ['hello']],
    ['sends less than a header', [Buffer.from([1, 2])]],
    ['sends an unknown type', [opened, encode(99, 1)]],
    ['answers in the place of the server', [opened, encodeJson(TYPE.done, 1, null)]],
    ['skips a number', [encodeJson(TYPE.open, 2, 'x')]],
    ['opens a number twice', [opened, opened]],
    ['opens with what is not JSON', [encode(TYPE.open, 1, Buffer.from('{'))]],
    [
      'opens with too large a request',
      [
        encodeJson(TYPE.open, 1, 'x'.repeat(32_000)),
        encode(TYPE.open, 2, Buffer.alloc(40_000, 0x20)),
      ],
    ],
    ['sends to a stream that was never opened', [data(1, 1)]],
    ['sends no bytes', [opened, data(1, 0)]],
    ['sends more than was granted', [opened, ...Array.from({ length: 5 }, () => data(1, 65_536))]],
    ['sends after its end', [opened, encode(TYPE.end, 1), data(1, 1)]],
    ['ends twice', [opened, encode(TYPE.end, 1), encode(TYPE.end, 1)]],
    ['grants without end', [opened, encodeCredit(1, 0xffff_ffff)]],
    ['sends half a credit', [opened, encode(TYPE.credit, 1, Buffer.alloc(3))]],
    ['sends a message beyond every limit', [Buffer.alloc(200_000)]],
  ];

  it.each(cases)('is cut off when it %s, and nobody else is', async (_how, messages) => {
    const { server } = await started(async (request, stream) => {
      if (request === 'bystander') return echo(request, stream);
      // Reads nothing, so that credit is used up and never given back.
      return once(stream.signal, 'abort');
    });
    const bystander = await dialled(server);
    const stream = bystander.open('bystander');
    const hostile = new WebSocket(server.url, {
      headers: { authorization: `Bearer ${server.token}` },
    });
    await once(hostile, 'open');
    const closed = once(hostile, 'close');
    hostile.on('error', () => undefined);
    for (const message of messages) hostile.send(message);
    await closed;
    await stream.send(Buffer.from('unmoved'));
    stream.end();
    expect((await collected(stream.receive())).toString()).toBe('unmoved');
  });

  it('may send late frames of a stream that is over', async () => {
    const { server } = await started(async () => 'over');
    const peer = new WebSocket(server.url, {
      headers: { authorization: `Bearer ${server.token}` },
    });
    releaseLater(() => peer.terminate());
    await once(peer, 'open');
    peer.send(opened);
    const [answer] = await once(peer, 'message');
    expect(decode(answer).type).toBe(TYPE.done);
    for (const late of [data(1, 10), encode(TYPE.end, 1), encode(TYPE.cancel, 1)]) peer.send(late);
    peer.send(encodeJson(TYPE.open, 2, 'x'));
    const [second] = await once(peer, 'message');
    expect(decode(second)).toMatchObject({ type: TYPE.done, stream: 2 });
  });
});
