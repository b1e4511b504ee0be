import { createServer, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { releaseAll, until } from '@vmux/testing';
import type { PreviewClient } from '../../../test/support/preview-client';
import { begin, httpApp, rawApp, type Stage, startStage } from './preview-stage';

/** What clients and apps may send that means one thing to one reader and another to the next. */
describe('Between a client and an app that do not keep to the rules, a preview', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage({ headWithinMs: 1_500 });
    begin(stage);
  });
  afterAll(releaseAll);

  /** Sends bytes as they are, and returns what comes back until the connection ends. */
  const exchanged = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect(Number(new URL(stage.url).port), '127.0.0.1', () =>
        socket.write(text),
      );
      let answer = '';
      socket.on('data', (piece) => {
        answer += piece.toString('latin1');
      });
      socket.on('close', () => resolve(answer));
      socket.on('error', reject);
    });
  const asked = (client: PreviewClient, lines: readonly string[], body = '') =>
    exchanged(
      [
        ...['POST / HTTP/1.1', `Host: ${client.host}`, `X-Vmux-Preview-Token: ${client.token}`],
        ...[...lines, 'Connection: close', '', body],
      ].join('\r\n'),
    );

  it.each([
    ['both lengths', ['Content-Length: 5', 'Transfer-Encoding: chunked'], '0\r\n\r\nGET /x'],
    ['two lengths', ['Content-Length: 5', 'Content-Length: 6'], 'abcdef'],
    ['a length that is a list', ['Content-Length: 5, 5'], 'abcde'],
    ['a signed length', ['Content-Length: +5'], 'abcde'],
    ['an unknown coding', ['Transfer-Encoding: gzip, chunked'], '0\r\n\r\n'],
    ['a coding that is hidden', ['Transfer-Encoding : chunked'], '0\r\n\r\n'],
    ['a coding twice', ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
    ['another host', ['Host: evil.example'], ''],
    ['a folded header', ['X-A: b', ' c'], ''],
    ['a header that is too long', [`X-Long: ${'a'.repeat(20_000)}`], ''],
  ])('refuses a request with %s', async (_, lines, body) => {
    const seen: IncomingMessage[] = [];
    const app = await httpApp(
      createServer((request, response) => {
        seen.push(request);
        response.end();
      }),
    );
    const client = await stage.client(app);
    const answer = await asked(client, lines, body);
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(seen).toEqual([]);
  });

  it('refuses a request line that names another place', async () => {
    const client = await stage.client(9);
    const head = [
      `Host: ${client.host}`,
      `X-Vmux-Preview-Token: ${client.token}`,
      'Connection: close',
    ];
    for (const target of ['http://evil.example/', `http://${client.host}/`, 'path'])
      expect(await exchanged([`GET ${target} HTTP/1.1`, ...head, '', ''].join('\r\n'))).toMatch(
        /^HTTP\/1\.1 400 /,
      );
  });

  const answering = (text: string, then: (socket: Socket) => void = (socket) => socket.end()) =>
    rawApp((socket) => {
      socket.once('data', () => socket.write(text, 'latin1', () => then(socket)));
    });
  const outcome = async (port: number): Promise<number | string> => {
    const client = await stage.client(port);
    return client.get('/').then(
      ({ status }) => status,
      (fault: Error) => (/cut|hang up|reset|aborted/i.test(fault.message) ? 'cut' : fault.message),
    );
  };

  it.each([
    ['is no HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['is garbage', '\x00\x01\x02\xff\xfe\r\n\r\n'],
    [
      'has both lengths',
      'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['has two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef'],
    [
      'has an unknown coding',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    ],
    ['has a head that is too long', `HTTP/1.1 200 OK\r\nX-Long: ${'a'.repeat(70_000)}\r\n\r\n`],
    ['has a broken header', 'HTTP/1.1 200 OK\r\nno colon here\r\n\r\n'],
    ['ends before its head does', 'HTTP/1.1 200 OK\r\nX-A: b\r\n'],
    ['is nothing', ''],
    [
      'changes the protocol unasked',
      'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    ],
  ])('answers 502 for an answer that %s', async (_, text) => {
    expect(await outcome(await answering(text))).toBe(502);
  });

  it.each([
    ['short of its length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this'],
    ['in mid-chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this'],
    ['before the last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n'],
    [
      'in a chunk that is none',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\nzz\r\n',
    ],
  ])('cuts an answer that breaks off %s', async (_, text) => {
    expect(await outcome(await answering(text))).toBe('cut');
  });

  it('cuts an answer without a length when its connection is reset', async () => {
    const port = await answering('HTTP/1.1 200 OK\r\n\r\nonly this', (socket) =>
      setTimeout(() => socket.resetAndDestroy(), 200),
    );
    expect(await outcome(port)).toBe('cut');
  });

  it('delivers an answer whose app did not read the request, and goes on with the connection', async () => {
    const port = await rawApp((socket) => {
      socket.once('data', () => {
        socket.pause();
        socket.end('HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull');
      });
    });
    const client = await stage.client(port);
    const body = Buffer.alloc(5_000_000);
    expect(await client.call('/', { method: 'POST', body })).toMatchObject({
      ...{ status: 413, text: 'full' },
    });
  });

  it('cuts a request that its client broke off', async () => {
    const seen: string[] = [];
    const app = await httpApp(
      createServer((request) => {
        request.on('data', (piece: Buffer) => seen.push(`data ${piece.length}`));
        request.on('error', () => seen.push('cut'));
        request.on('end', () => seen.push('end'));
      }),
    );
    const client = await stage.client(app);
    const framings: Record<string, string>[] = [
      { 'content-length': '100' },
      { 'transfer-encoding': 'chunked' },
    ];
    for (const headers of framings) {
      const call = client.open('/', { method: 'POST', headers });
      call.on('error', () => undefined);
      call.write('only this');
      await until(() => seen.includes('data 9'));
      call.destroy();
      await until(() => seen.includes('cut'));
      expect(seen.splice(0)).toEqual(['data 9', 'cut']);
    }
  });

  it('ends an answer without a length with its connection', async () => {
    const client = await stage.client(await answering('HTTP/1.0 200 OK\r\n\r\nall of this'));
    expect(await client.get('/')).toMatchObject({ status: 200, text: 'all of this' });
  });

  it('gives up on an app that does not answer, or sends its head letter by letter', async () => {
    expect(await outcome(await rawApp(() => undefined))).toBe(504);
    const closed: boolean[] = [];
    const trickling = await rawApp((socket) => {
      const timer = setInterval(() => socket.write('H'), 100);
      socket.on('close', () => {
        clearInterval(timer);
        closed.push(true);
      });
      socket.write('HTTP/1.1 200 OK\r\nX-Slow: ');
    });
    expect(await outcome(trickling)).toBe(504);
    await until(() => closed.length === 1);
  });

  it('waits for an answer’s body as long as its reader does', async () => {
    const port = await answering('HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nslow', (socket) =>
      setTimeout(() => socket.end('body'), 2_500),
    );
    const client = await stage.client(port);
    expect(await client.get('/')).toMatchObject({ status: 200, text: 'slowbody' });
  });
});
