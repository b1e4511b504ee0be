import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { fact } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import {
  begin,
  httpApp,
  type RecordingApp,
  recordingApp,
  SESSION,
  type Stage,
  startStage,
} from './preview-stage';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const KEY = `vmux_${'a'.repeat(12)}_${'b'.repeat(43)}`;

describe('A preview', () => {
  let stage: Stage;
  let served: RecordingApp;
  let app: number;

  beforeAll(async () => {
    stage = await startStage();
    begin(stage);
    served = await recordingApp();
    app = served.port;
  });
  beforeEach(() => served.reset());
  afterAll(releaseAll);

  describe('hands the app', () => {
    it('its own host, who asked and how, and nothing of ours', async () => {
      const client = await stage.client(app);
      await client.get('/x', {
        headers: {
          origin: client.origin,
          referer: `${client.origin}/page?a=1`,
          'x-forwarded-for': '6.6.6.6',
          'x-forwarded-host': 'evil.example',
          forwarded: 'for=6.6.6.6',
          connection: 'close, X-Secret-Hop',
          'x-secret-hop': 'gone',
          te: 'trailers',
          'proxy-authorization': 'Basic eDp5',
          'x-kept': 'kept',
        },
      });
      const port = new URL(stage.url).port;
      expect(served.seen[0]?.headers).toEqual({
        host: `localhost:${app}`,
        origin: `http://localhost:${app}`,
        referer: `http://localhost:${app}/page?a=1`,
        'x-forwarded-for': '127.0.0.1',
        'x-forwarded-host': client.host,
        'x-forwarded-port': port,
        'x-forwarded-proto': 'http',
        'x-kept': 'kept',
        connection: 'close',
      });
      await client.get('/y', { headers: { origin: 'http://elsewhere.example' } });
      expect(served.seen[1]?.headers.origin).toBe('http://elsewhere.example');
    });

    it('redirects and cookies that stay below the preview’s name', async () => {
      const client = await stage.client(app);
      served.answer = (_request, response) =>
        response
          .writeHead(302, {
            location: `http://localhost:${app}/next?a=1`,
            'set-cookie': [
              'a=1; Path=/; Domain=localhost; HttpOnly',
              'vmux_preview=stolen; Path=/',
              'b=2',
            ],
            connection: 'x-hop',
            'x-hop': 'gone',
          })
          .end();
      const reply = await client.get('/');
      expect(reply.headers).toMatchObject({
        location: `${client.origin}/next?a=1`,
        'set-cookie': ['a=1; Path=/; HttpOnly', 'b=2'],
      });
      expect(reply.headers['x-hop']).toBeUndefined();
      served.answer = (_request, response) =>
        response.writeHead(302, { location: 'https://localhost:1/elsewhere' }).end();
      expect((await client.get('/')).headers.location).toBe('https://localhost:1/elsewhere');
    });
  });

  describe('streams', () => {
    it('an upload and its answer at the same time, piece by piece', async () => {
      const client = await stage.client(app);
      served.answer = (request, response) => {
        response.writeHead(200);
        request.on('data', (piece: Buffer) => response.write(piece.toString().toUpperCase()));
        request.on('end', () => response.end('.'));
      };
      const call = client.open('/', { method: 'POST', headers: { 'content-type': 'text/plain' } });
      call.write('one ');
      const response = await new Promise<IncomingMessage>((resolve) =>
        call.on('response', resolve),
      );
      let text = '';
      response.on('data', (piece: Buffer) => {
        text += piece;
      });
      await until(() => text === 'ONE ');
      call.write('two ');
      await until(() => text === 'ONE TWO ');
      call.end('three');
      await until(() => text === 'ONE TWO THREE.');
      expect(served.seen[0]?.headers['transfer-encoding']).toBe('chunked');
    });

    it('4 MiB up and down, byte for byte, with and without a length', async () => {
      const client = await stage.client(app);
      const content = seededRandom(8).bytes(4 * 1024 * 1024);
      served.answer = (request, response) => {
        response.writeHead(
          200,
          request.headers['content-length'] ? { 'content-length': content.length } : {},
        );
        request.pipe(response);
      };
      const chunked = await client.call('/', {
        method: 'PUT',
        body: content,
        headers: { 'transfer-encoding': 'chunked' },
      });
      expect(sha256(chunked.bytes)).toBe(sha256(content));
      const sized = await client.call('/', {
        method: 'PUT',
        body: content,
        headers: { 'content-length': String(content.length) },
      });
      expect(sha256(sized.bytes)).toBe(sha256(content));
      expect(sized.headers['content-length']).toBe(String(content.length));
    });

    it('server-sent events as they happen, and tells the app when their reader goes', async () => {
      const client = await stage.client(app);
      let gone = false;
      let send: (text: string) => void = () => undefined;
      served.answer = (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        send = (text) => response.write(`data: ${text}\n\n`);
        response.on('close', () => {
          gone = true;
        });
        send('1');
      };
      const call = client.open('/', { headers: { accept: 'text/event-stream' } });
      let text = '';
      call.on('response', (response) => {
        response.on('data', (piece: Buffer) => {
          text += piece;
        });
        response.on('error', () => undefined);
      });
      call.on('error', () => undefined);
      call.end();
      await until(() => text === 'data: 1\n\n');
      send('2');
      await until(() => text === 'data: 1\n\ndata: 2\n\n');
      call.destroy();
      await until(() => gone);
    });

    it('no body where there is none', async () => {
      const client = await stage.client(app);
      served.answer = (_request, response) => response.writeHead(304, { etag: '"x"' }).end();
      expect(await client.get('/')).toMatchObject({
        status: 304,
        text: '',
        headers: { etag: '"x"' },
      });
      served.answer = (_request, response) =>
        response.writeHead(200, { 'content-length': 42 }).end();
      const head = await client.get('/', { method: 'HEAD' });
      expect(head).toMatchObject({ status: 200, text: '', headers: { 'content-length': '42' } });
      served.answer = (_request, response) => response.writeHead(204).end();
      expect(await client.call('/', { method: 'DELETE' })).toMatchObject({ status: 204 });
      served.answer = (request, response) => {
        request.resume().on('end', () => response.end('went on'));
      };
      const expecting = await client.call('/', {
        method: 'POST',
        body: Buffer.from('x'),
        headers: { expect: '100-continue', 'content-length': '1' },
      });
      expect(expecting).toMatchObject({ status: 200, text: 'went on' });
    });
  });

  describe('of something that is not there', () => {
    const html = { accept: 'text/html,*/*' };

    it('is a page that waits for the port, and one line for others', async () => {
      const client = await stage.client(9);
      const page = await client.get('/', { headers: html });
      expect(page).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
      const [, nonce] =
        /script-src 'nonce-([^']+)'/.exec(String(page.headers['content-security-policy'])) ?? [];
      expect(page.text).toContain(`<script nonce="${nonce}">`);
      expect(page.text).toContain('Waiting for port 9');
      const line = await client.get('/');
      expect(line.headers['content-type']).toBe('text/plain; charset=utf-8');
      expect(line.text.trimEnd()).not.toContain('\n');
    });

    it('is an error for ports that cannot be, and for a provider’s own', async () => {
      const client = await stage.client(app);
      const host = (port: string) => ({ host: client.host.replace(/^\d+/, port) });
      expect(await client.get('/', { headers: host('0') })).toMatchObject({ status: 400 });
      expect(await client.get('/', { headers: host('65536') })).toMatchObject({ status: 400 });
      expect(await client.get('/', { headers: host('x') })).toMatchObject({ status: 421 });
      const reserved = await stage.client(3000);
      stage.view.provider = 'cloudflare';
      expect(await reserved.get('/')).toMatchObject({ status: 400 });
      stage.view.provider = 'ns';
    });

    it('wakes a session for those who may, and says that it has ended', async () => {
      const own = await startStage();
      begin(own);
      const client = await own.client(app);
      own.happened(fact('SandboxSuspended', { at: 5, epoch: 1 }));
      expect(await client.get('/', { headers: html })).toMatchObject({ status: 503 });
      expect(own.woken).toEqual(['ann']);
      expect(await client.get('/')).toMatchObject({ status: 200, text: 'the app' });
      expect(own.woken).toEqual(['ann', 'ann']);
      const publish = (wake: boolean) =>
        own.happened(
          fact('PortAccessChanged', { at: 6, port: app, public: true, wake, generation: 0 }),
        );
      publish(false);
      const resting = await client.get('/', { token: null });
      expect(resting).toMatchObject({ status: 503 });
      expect(resting.text).toContain('suspended');
      expect(own.woken).toHaveLength(2);
      publish(true);
      expect(await client.get('/', { token: null })).toMatchObject({ status: 200 });
      expect(own.woken).toHaveLength(3);
      own.happened(fact('SessionStopped', { at: 7, cause: 'request' }));
      expect(await client.get('/', { headers: html })).toMatchObject({ status: 410 });
      own.happened(
        fact('SessionDeleted', { at: 8, sessionId: SESSION, owner: 'ann', createdBy: null }),
      );
      expect(await client.get('/')).toMatchObject({ status: 401 });
    });

    it('wakes a session once for all who look meanwhile', async () => {
      let awake = () => {};
      const awakeAfter = new Promise<void>((resolve) => {
        awake = resolve;
      });
      const own = await startStage({ awakeAfter });
      begin(own);
      const client = await own.client(app);
      own.happened(fact('SandboxSuspended', { at: 5, epoch: 1 }));
      for (let look = 0; look < 5; look += 1)
        expect(await client.get('/', { headers: html })).toMatchObject({ status: 503 });
      expect(own.woken).toEqual(['ann']);
      awake();
      await until(async () => {
        await client.get('/', { headers: html });
        return own.woken.length === 2;
      });
    });

    it('takes so many connections at once and refuses the next', async () => {
      const client = await stage.client(app);
      const held: ServerResponse[] = [];
      served.answer = (_request, response) => {
        held.push(response);
        response.flushHeaders();
      };
      const calls = Array.from({ length: 200 }, () =>
        client.open('/').on('error', () => undefined),
      );
      for (const call of calls) call.end();
      await until(() => held.length === 200, { timeoutMs: 20_000 });
      expect(await client.get('/')).toMatchObject({ status: 503 });
      for (const call of calls) call.destroy();
      served.answer = (_request, response) => response.end('again');
      await until(async () => (await client.get('/')).status === 200);
    });
  });

  describe('of a WebSocket', () => {
    const connected = (headers: Record<string, string>, path = '/') =>
      new Promise<WebSocket | number>((resolve, reject) => {
        const socket = new WebSocket(`${stage.url.replace('http', 'ws')}${path}`, { headers });
        socket.once('open', () => resolve(socket));
        socket.once('unexpected-response', (_request, response) => {
          response.resume();
          resolve(response.statusCode ?? 0);
        });
        socket.once('error', reject);
      });

    it('carries messages both ways, with a token in any of its places', async () => {
      const { WebSocketServer } = await import('ws');
      const server = createServer();
      const sockets = new WebSocketServer({ server });
      const handshakes: IncomingMessage[] = [];
      sockets.on('connection', (socket, request) => {
        handshakes.push(request);
        socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
      });
      const port = await httpApp(server);
      const client = await stage.client(port);
      const { host, token } = client;
      const own = { host, origin: client.origin };
      const ways = [
        await connected({ ...own, 'x-vmux-preview-token': token ?? '' }),
        await connected({ ...own, cookie: `vmux_preview=${token}` }),
        await connected(own, `/chat?token=${token}&room=1`),
      ];
      for (const socket of ways) {
        if (typeof socket === 'number') throw new Error(`refused with ${socket}`);
        const echoed = new Promise<Buffer>((resolve) =>
          socket.once('message', (data) => resolve(data as Buffer)),
        );
        const sent = seededRandom(9).bytes(300_000);
        socket.send(sent);
        expect(sha256(await echoed)).toBe(sha256(sent));
        const closed = new Promise<number>((resolve) => socket.once('close', resolve));
        socket.close(4001);
        expect(await closed).toBe(4001);
      }
      expect(handshakes[2]?.url).toBe('/chat?room=1');
      for (const { headers } of handshakes) {
        expect(headers).toMatchObject({
          host: `localhost:${port}`,
          origin: `http://localhost:${port}`,
        });
        expect(JSON.stringify(headers)).not.toContain('vmxp_');
      }
      expect(await connected({ host })).toBe(401);
      expect(
        await connected({ host, origin: 'http://evil.example', cookie: `vmux_preview=${token}` }),
      ).toBe(403);
      expect(await connected({ host, authorization: `Bearer ${KEY}` })).toBe(400);
      expect(handshakes).toHaveLength(3);
    });

    it('passes on a refusal of the app, and says when nothing listens', async () => {
      const { address } = await stage.client(app);
      served.answer = (_request, response) => response.writeHead(418).end();
      expect(await connected(address.headers)).toBe(418);
      expect(await connected((await stage.client(9)).address.headers)).toBe(503);
    });
  });
});
