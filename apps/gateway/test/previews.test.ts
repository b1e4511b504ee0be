import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { fact } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import { begin, httpApp, SESSION, type Stage, startStage } from './preview-stage';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const KEY = `vmux_${'a'.repeat(12)}_${'b'.repeat(43)}`;

describe('A preview', () => {
  let stage: Stage;
  let app: number;
  let seen: IncomingMessage[] = [];
  let answer: (request: IncomingMessage, response: ServerResponse) => void = () => undefined;

  beforeAll(async () => {
    stage = await startStage();
    begin(stage);
    app = await httpApp(
      createServer((request, response) => {
        seen.push(request);
        answer(request, response);
      }),
    );
  });
  beforeEach(() => {
    seen = [];
    answer = (_request, response) => response.end('the app');
  });
  afterAll(releaseAll);

  describe('is private', () => {
    it('and opens with a token in the header, not with none, a wrong one, or another port’s', async () => {
      const client = await stage.client(app);
      expect(await client.get('/')).toMatchObject({ status: 200, text: 'the app' });
      expect(await client.get('/', { token: null })).toMatchObject({ status: 401 });
      expect(await client.get('/', { token: `${client.token}0` })).toMatchObject({ status: 401 });
      const other = await stage.client(app + 1);
      expect(await client.get('/', { token: other.token })).toMatchObject({ status: 401 });
      const about = { sessionId: SESSION, port: app, generation: 0 };
      const late = await stage.tokens.mint({ ...about, expiresAt: Date.now() - 1 });
      expect(await client.get('/', { token: late })).toMatchObject({ status: 401 });
      const revoked = await stage.tokens.mint({
        ...{ ...about, generation: 7 },
        expiresAt: Date.now() + 1e6,
      });
      expect(await client.get('/', { token: revoked })).toMatchObject({ status: 401 });
      expect(seen).toHaveLength(1);
    });

    it('and looks like a session that does not exist to who has no token', async () => {
      const client = await stage.client(app);
      const [there, nowhere] = await Promise.all([
        client.get('/', { token: null }),
        client.get('/', {
          token: null,
          headers: { host: client.host.replace(SESSION, 'nobody-0a1b') },
        }),
      ]);
      expect(nowhere).toMatchObject({ status: 401 });
      expect(nowhere.text).toBe(there.text);
    });

    it('and takes a token in the URL once, for a cookie and a clean URL', async () => {
      const client = await stage.client(app);
      const { token } = client;
      const reply = await client.get(`/a/b?x=1&token=${token}&y=%20`, { token: null });
      expect(reply).toMatchObject({ status: 303, headers: { location: '/a/b?x=1&y=%20' } });
      const [cookie = ''] = reply.headers['set-cookie'] ?? [];
      expect(cookie).toMatch(
        /^vmux_preview=vmxp_\S+; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax$/,
      );
      expect(seen).toEqual([]);
      const jar = `mine=1; ${cookie.split(';')[0]}; other=2`;
      const again = await client.get('/a/b?x=1&y=%20', { token: null, headers: { cookie: jar } });
      expect(again).toMatchObject({ status: 200 });
      expect(seen[0]?.url).toBe('/a/b?x=1&y=%20');
      expect(seen[0]?.headers.cookie).toBe('mine=1; other=2');
      const posted = await client.call(`/p?token=${token}`, { method: 'POST', token: null });
      expect(posted).toMatchObject({ status: 200 });
      expect(seen[1]?.url).toBe('/p');
      await client.get('/login?token=the-apps-own');
      expect(seen[2]?.url).toBe('/login?token=the-apps-own');
    });

    it('and the clean URL stays on this host', async () => {
      const client = await stage.client(app);
      for (const path of ['//example.org/x', '/\\example.org/x']) {
        const { headers } = await client.get(`${path}?token=${client.token}`, { token: null });
        const to = new URL(headers.location ?? '', client.origin);
        expect({ path, host: to.host }).toEqual({ path, host: client.host });
      }
    });

    it('and an API key neither opens it nor reaches the app', async () => {
      const client = await stage.client(app);
      const places: Record<string, string>[] = [
        { authorization: `Bearer ${KEY}` },
        { 'x-vmux-preview-token': KEY },
      ];
      for (const headers of places) {
        const reply = await client.get('/', { token: null, headers });
        expect(reply).toMatchObject({ status: 400 });
        expect(reply.text).not.toContain(KEY);
      }
      expect(await client.get(`/?key=${KEY}`)).toMatchObject({ status: 400 });
      for (const token of [client.token, `vmuxshare_s${'1'.repeat(12)}_${'s'.repeat(43)}`])
        expect(
          await client.get('/', { headers: { authorization: `Bearer ${token}` } }),
        ).toMatchObject({ status: 400 });
      expect(seen).toEqual([]);
      await client.get('/', { headers: { authorization: 'Bearer of-the-app' } });
      expect(seen[0]?.headers.authorization).toBe('Bearer of-the-app');
    });

    it('and a cookie is not enough for what another site asks for', async () => {
      const client = await stage.client(app);
      const cookie = `vmux_preview=${client.token}`;
      const ask = (headers: Record<string, string>) =>
        client.get('/', { token: null, headers: { cookie, ...headers } });
      expect(await ask({})).toMatchObject({ status: 200 });
      expect(await ask({ origin: client.origin })).toMatchObject({ status: 200 });
      expect(await ask({ origin: 'http://evil.example' })).toMatchObject({ status: 403 });
      expect(await ask({ origin: 'null' })).toMatchObject({ status: 403 });
      const site = (value: string, mode: string) =>
        ask({ 'sec-fetch-site': value, 'sec-fetch-mode': mode });
      expect(await site('same-origin', 'cors')).toMatchObject({ status: 200 });
      expect(await site('none', 'navigate')).toMatchObject({ status: 200 });
      expect(await site('cross-site', 'navigate')).toMatchObject({ status: 200 });
      expect(await site('cross-site', 'no-cors')).toMatchObject({ status: 403 });
      expect(await site('same-site', 'cors')).toMatchObject({ status: 403 });
      expect(
        await client.get('/', { headers: { origin: 'http://elsewhere.example' } }),
      ).toMatchObject({ status: 200 });
    });

    it('and on https its cookie is bound to the host', async () => {
      const secure = await startStage({ previewUrl: 'https://preview.example.org' });
      begin(secure);
      const { token } = await secure.client(app);
      const client = await secure.client(app);
      const host = `${app}-${SESSION}.preview.example.org`;
      const reply = await client.get(`/?token=${token}`, { token: null, headers: { host } });
      expect(reply.headers['set-cookie']?.[0]).toMatch(/^__Host-vmux_preview=.*; Secure$/);
      expect(await client.get('/', { headers: { host: client.host } })).toMatchObject({
        status: 421,
      });
    });

    it('and opens to a share of this port, until that is revoked', async () => {
      const client = await stage.client(app);
      const secret = 's'.repeat(43);
      const share = (digit: string, rights: readonly ('ports' | 'logs')[], ports: number[]) => {
        const shareId = `s${digit.repeat(12)}`;
        const expiresAt = Date.now() + 60_000;
        const tokenHash = createHash('sha256').update(secret).digest('hex');
        stage.happened(
          fact('ShareGranted', { at: 9, shareId, tokenHash, rights, ports, expiresAt }),
        );
        return { shareId, token: `vmuxshare_${shareId}_${secret}` };
      };
      const all = share('1', ['ports'], []);
      const one = share('2', ['ports'], [app]);
      const another = share('3', ['ports'], [app + 1]);
      const none = share('4', ['logs'], []);
      const status = async ({ token }: { token: string }) =>
        (await client.get('/', { token })).status;
      expect([await status(all), await status(one)]).toEqual([200, 200]);
      expect([await status(another), await status(none)]).toEqual([401, 401]);
      const clean = await client.get(`/x?token=${one.token}`, { token: null });
      expect(clean).toMatchObject({ status: 303, headers: { location: '/x' } });
      const [cookie = ''] = clean.headers['set-cookie'] ?? [];
      const headers = { cookie: cookie.split(';')[0] ?? '' };
      expect(await client.get('/x', { token: null, headers })).toMatchObject({ status: 200 });
      expect(seen.at(-1)?.headers.cookie).toBeUndefined();
      const cut = new Promise<string>((resolve) => {
        answer = (_request, response) => response.write('begun');
        const call = client.open('/', { token: one.token });
        call.on('error', () => resolve('cut'));
        call.on('response', (response) => {
          response.on('error', () => resolve('cut'));
          response.on('end', () => resolve('ended'));
          response.once('data', () =>
            stage.happened(fact('ShareRevoked', { at: 10, shareId: one.shareId })),
          );
        });
        call.end();
      });
      expect(await cut).toBe('cut');
      expect(await status(one)).toBe(401);
      answer = (_request, response) => response.end();
      expect(await status(all)).toBe(200);
    });

    it('until it is published, and again afterwards', async () => {
      const client = await stage.client(app);
      const access = (change: { public: boolean; wake: boolean; generation: number }) =>
        stage.happened(fact('PortAccessChanged', { at: 9, port: app, ...change }));
      access({ public: true, wake: false, generation: 0 });
      expect(await client.get('/', { token: null })).toMatchObject({ status: 200 });
      access({ public: false, wake: false, generation: 0 });
      expect(await client.get('/', { token: null })).toMatchObject({ status: 401 });
      expect(await client.get('/')).toMatchObject({ status: 200 });
      const stuck = new Promise<string>((resolve) => {
        answer = (_request, response) => response.write('begun');
        const call = client.open('/');
        call.on('error', () => resolve('cut'));
        call.on('response', (response) => {
          response.on('error', () => resolve('cut'));
          response.once('data', () => access({ public: false, wake: false, generation: 1 }));
          response.on('end', () => resolve('ended'));
        });
        call.end();
      });
      expect(await stuck).toBe('cut');
      answer = (_request, response) => response.end('the app');
      expect(await client.get('/')).toMatchObject({ status: 401 });
      expect(await (await stage.client(app)).get('/nothing', { method: 'HEAD' })).toMatchObject({
        status: 200,
      });
    });
  });

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
      expect(seen[0]?.headers).toEqual({
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
      expect(seen[1]?.headers.origin).toBe('http://elsewhere.example');
    });

    it('redirects and cookies that stay below the preview’s name', async () => {
      const client = await stage.client(app);
      answer = (_request, response) =>
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
      answer = (_request, response) =>
        response.writeHead(302, { location: 'https://localhost:1/elsewhere' }).end();
      expect((await client.get('/')).headers.location).toBe('https://localhost:1/elsewhere');
    });
  });

  describe('streams', () => {
    it('an upload and its answer at the same time, piece by piece', async () => {
      const client = await stage.client(app);
      answer = (request, response) => {
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
      expect(seen[0]?.headers['transfer-encoding']).toBe('chunked');
    });

    it('4 MiB up and down, byte for byte, with and without a length', async () => {
      const client = await stage.client(app);
      const content = seededRandom(8).bytes(4 * 1024 * 1024);
      answer = (request, response) => {
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
      answer = (_request, response) => {
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
      answer = (_request, response) => response.writeHead(304, { etag: '"x"' }).end();
      expect(await client.get('/')).toMatchObject({
        status: 304,
        text: '',
        headers: { etag: '"x"' },
      });
      answer = (_request, response) => response.writeHead(200, { 'content-length': 42 }).end();
      const head = await client.get('/', { method: 'HEAD' });
      expect(head).toMatchObject({ status: 200, text: '', headers: { 'content-length': '42' } });
      answer = (_request, response) => response.writeHead(204).end();
      expect(await client.call('/', { method: 'DELETE' })).toMatchObject({ status: 204 });
      answer = (request, response) => {
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
      answer = (_request, response) => {
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
      answer = (_request, response) => response.end('again');
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
      answer = (_request, response) => response.writeHead(418).end();
      expect(await connected(address.headers)).toBe(418);
      expect(await connected((await stage.client(9)).address.headers)).toBe(503);
    });
  });
});
