import { createHash } from 'node:crypto';
import { fact } from '@vmux/events';
import { releaseAll } from '@vmux/testing';
import {
  begin,
  type RecordingApp,
  recordingApp,
  SESSION,
  type Stage,
  startStage,
} from './preview-stage';

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
      expect(served.seen).toHaveLength(1);
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
      expect(served.seen).toEqual([]);
      const jar = `mine=1; ${cookie.split(';')[0]}; other=2`;
      const again = await client.get('/a/b?x=1&y=%20', { token: null, headers: { cookie: jar } });
      expect(again).toMatchObject({ status: 200 });
      expect(served.seen[0]?.url).toBe('/a/b?x=1&y=%20');
      expect(served.seen[0]?.headers.cookie).toBe('mine=1; other=2');
      const posted = await client.call(`/p?token=${token}`, { method: 'POST', token: null });
      expect(posted).toMatchObject({ status: 200 });
      expect(served.seen[1]?.url).toBe('/p');
      await client.get('/login?token=the-apps-own');
      expect(served.seen[2]?.url).toBe('/login?token=the-apps-own');
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
      expect(served.seen).toEqual([]);
      await client.get('/', { headers: { authorization: 'Bearer of-the-app' } });
      expect(served.seen[0]?.headers.authorization).toBe('Bearer of-the-app');
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
      expect(served.seen.at(-1)?.headers.cookie).toBeUndefined();
      const cut = new Promise<string>((resolve) => {
        served.answer = (_request, response) => response.write('begun');
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
      served.answer = (_request, response) => response.end();
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
        served.answer = (_request, response) => response.write('begun');
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
      served.answer = (_request, response) => response.end('the app');
      expect(await client.get('/')).toMatchObject({ status: 401 });
      expect(await (await stage.client(app)).get('/nothing', { method: 'HEAD' })).toMatchObject({
        status: 200,
      });
    });
  });
});
