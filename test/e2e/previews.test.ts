import { createHash, randomBytes } from 'node:crypto';
import { until } from '@vmux/testing';
import { WebSocket } from 'ws';
import type { ApiClient } from '../support/api-client';
import { describeOnStack } from '../support/describe-on-stack';
import { PreviewClient } from '../support/preview-client';
import { PREVIEWED_APP } from '../support/previewed-app';

/** Apps in real sandboxes, looked at through the gateway by their names. */
describeOnStack()('previews', (stack) => {
  let api: ApiClient;
  let session: string;

  beforeAll(async () => {
    ({ api } = stack);
    ({ id: session } = await stack.create({ name: 'look' }));
  }, 90_000);

  const issued = async (body: object) => {
    const reply = await api.post(`/v1/sessions/${session}/execs`, body);
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id as string;
  };
  const listening = (port: number) =>
    until(
      async () => {
        const { json } = await api.get(`/v1/sessions/${session}/ports`);
        return json.ports.find(
          (each: { port: number; open: boolean }) => each.port === port && each.open,
        );
      },
      { timeoutMs: 30_000 },
    );
  const tokenOf = async (port: number) =>
    (await api.post(`/v1/sessions/${session}/ports/${port}/token`, {})).json;
  const preview = async (port: number) => {
    const { token } = await tokenOf(port);
    return new PreviewClient(api.url, session, port, token);
  };

  it('shows python3 -m http.server that is bound to 127.0.0.1 alone', async () => {
    await issued({
      command:
        'mkdir -p /workspace/www && echo hello > /workspace/www/a.txt && cd /workspace/www && exec python3 -m http.server --bind 127.0.0.1 8000',
    });
    const port = await listening(8000);
    expect(port).toMatchObject({ address: '127.0.0.1', public: false });
    expect(port.url).toBe(`http://8000-${session}.localhost:${new URL(api.url).port}/`);
    const app = await preview(8000);
    expect(await app.get('/a.txt')).toMatchObject({ status: 200, text: 'hello\n' });
    expect(await app.get('/a.txt', { token: null })).toMatchObject({ status: 401 });
  }, 90_000);

  describe('a small node server on 127.0.0.1', () => {
    beforeAll(async () => {
      await api.call('PUT', `/v1/sessions/${session}/files?path=/workspace/app.js&parents=1`, {
        body: Buffer.from(PREVIEWED_APP),
      });
      await issued({ command: 'exec node /workspace/app.js 127.0.0.1 4000' });
      await listening(4000);
    }, 60_000);

    it('echoes WebSocket messages', async () => {
      const { address } = await preview(4000);
      const socket = new WebSocket(`${address.url.replace('http', 'ws')}/chat`, {
        headers: address.headers,
      });
      const echoed: string[] = [];
      socket.on('message', (data) => echoed.push(data.toString()));
      await new Promise<void>((resolve, reject) => {
        socket.once('open', () => resolve());
        socket.once('error', reject);
      });
      const sent = Array.from({ length: 50 }, (_, n) => `message ${n} 漢字 ${'x'.repeat(n)}`);
      for (const text of sent) socket.send(text);
      await until(() => echoed.length === sent.length, { timeoutMs: 20_000 });
      expect(echoed).toEqual(sent);
      const closed = new Promise<number>((resolve) => socket.once('close', resolve));
      socket.terminate();
      await closed;
    }, 60_000);

    it('sends events one by one, as they happen', async () => {
      const client = await preview(4000);
      const call = client.open('/events', { headers: { accept: 'text/event-stream' } });
      let text = '';
      call.on('response', (response) => {
        response.on('data', (piece: Buffer) => {
          text += piece;
        });
        response.on('error', () => undefined);
      });
      call.on('error', () => undefined);
      call.end();
      for (let event = 1; event <= 3; event += 1) {
        // The next one is sent only after somebody has asked for it.
        await until(() => text.includes(`data: ${event}\n\n`), { timeoutMs: 20_000 });
        expect(text).not.toContain(`data: ${event + 1}\n\n`);
        expect(await client.call('/next', { method: 'POST' })).toMatchObject({ status: 200 });
      }
      call.destroy();
    }, 60_000);

    it('takes 20 MiB and gives them back', async () => {
      const client = await preview(4000);
      const content = randomBytes(20 * 1024 * 1024);
      const up = await client.call('/upload', { method: 'PUT', body: content });
      expect(up).toMatchObject({ status: 200, text: sha256(content) });
      const down = await client.get('/download');
      expect(down.headers['content-length']).toBe(String(content.length));
      expect(sha256(down.bytes)).toBe(sha256(content));
    }, 120_000);

    it('is reached at another gateway process with the same token, and by one raw connection', async () => {
      const client = await preview(4000);
      const before = stack.pidOf('gateway');
      process.kill(before, 'SIGKILL');
      const reply = await until(() => client.get('/').catch(() => null), {
        timeoutMs: 60_000,
        everyMs: 100,
      });
      expect(reply).toMatchObject({ status: 200, text: `localhost:4000 127.0.0.1` });
      expect(stack.pidOf('gateway')).not.toBe(before);

      const path = `/v1/sessions/${session}/ports/4000/connect`;
      const connected = (port = 4000, headers = { authorization: `Bearer ${api.key}` }) => {
        const at = `${api.url.replace('http', 'ws')}${path.replace('4000', String(port))}`;
        const socket = new WebSocket(at, { headers });
        socket.on('error', () => undefined);
        return socket;
      };
      const socket = connected();
      const pieces: Buffer[] = [];
      const texts: string[] = [];
      socket.on('message', (data, isBinary) =>
        isBinary ? pieces.push(data as Buffer) : texts.push(data.toString()),
      );
      socket.once('open', () => {
        socket.send(Buffer.from('GET / HTTP/1.1\r\nHost: raw\r\nConnection: close\r\n\r\n'));
        socket.send('end');
      });
      const code = await new Promise<number>((resolve) => socket.once('close', resolve));
      expect(Buffer.concat(pieces).toString()).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*raw /);
      expect({ texts, code }).toEqual({ texts: ['end'], code: 1000 });
      const refused = connected(4999);
      expect(await new Promise<number>((resolve) => refused.once('close', resolve))).toBe(4502);
      const stranger = connected(4000, { authorization: 'Bearer nothing' });
      const status = new Promise((resolve) =>
        stranger.once('unexpected-response', (_request, response) => resolve(response.statusCode)),
      );
      expect(await status).toBe(401);
    }, 90_000);
  });

  it('waits with the log, becomes the app by itself, and shows the public stages alone', async () => {
    const html = { accept: 'text/html' };
    const client = await preview(5000);
    const published = await api.post(`/v1/sessions/${session}/ports/5000/publish`, {});
    expect(published).toMatchObject({
      status: 200,
      json: { port: 5000, open: false, public: true, wake: false },
    });
    for (const token of [client.token, null]) {
      const page = await client.get('/', { token, headers: html });
      expect(page).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
      expect(page.text).toContain('Waiting for port 5000');
    }
    const events = (token: string | null) => {
      const seen = { text: '', ended: false };
      const call = client.open('/.vmux/preview/events', { token });
      call.on('response', (response) => {
        response.on('data', (piece: Buffer) => {
          seen.text += piece;
        });
        response.on('end', () => {
          seen.ended = true;
        });
      });
      call.end();
      return seen;
    };
    const own = events(client.token);
    const strangers = events(null);
    const secret = 'a line that only its owner sees';
    await issued({ command: `echo ${secret}; exec python3 -m http.server --bind 127.0.0.1 5000` });
    await until(() => own.ended && strangers.ended, { timeoutMs: 30_000 });
    for (const { text } of [own, strangers]) {
      expect(text).toContain('event: ready');
      expect(text).toContain('"stages":["provisioned"');
    }
    expect(logIn(own.text)).toContain(secret);
    expect(strangers.text).not.toContain('event: log');
    expect(await client.get('/', { token: null, headers: html })).toMatchObject({ status: 200 });
    expect(await api.post(`/v1/sessions/${session}/ports/5000/unpublish`)).toMatchObject({
      status: 200,
      json: { public: false },
    });
    expect(await client.get('/', { token: null })).toMatchObject({ status: 401 });
    expect(await client.get('/')).toMatchObject({ status: 200 });
    await api.post(`/v1/sessions/${session}/ports/5000/revoke-tokens`);
    expect(await client.get('/')).toMatchObject({ status: 401 });
    expect(await (await preview(5000)).get('/')).toMatchObject({ status: 200 });
    const { text } = await api.get(`/v1/sessions/${session}/events`);
    const changes = text
      .split('\n')
      .filter((line) => line.includes('"PortAccessChanged"'))
      .map((line) => JSON.parse(line).data);
    expect(changes).toMatchObject([
      { port: 5000, public: true, generation: 0 },
      { port: 5000, public: false, generation: 0 },
      { port: 5000, public: false, generation: 1 },
    ]);
  }, 90_000);

  it('has endpoints that refuse what is not a port, and who may not', async () => {
    const path = `/v1/sessions/${session}/ports`;
    for (const port of ['0', '65536', 'x', '-1'])
      expect(await api.post(`${path}/${port}/token`, {})).toMatchObject({ status: 400 });
    expect(await api.post(`${path}/80/token`, { ttl: '169h' })).toMatchObject({ status: 400 });
    expect(await api.post(`${path}/80/publish`, { public: 1 })).toMatchObject({ status: 400 });
    const reader = await api.post('/v1/api-keys', { name: 'reader', scopes: ['sessions:read'] });
    const mere = api.withKey(reader.json.key);
    expect(await mere.get(path)).toMatchObject({ status: 200 });
    expect(await mere.post(`${path}/80/token`, {})).toMatchObject({ status: 403 });
    expect(await mere.post(`${path}/80/publish`, {})).toMatchObject({ status: 403 });
  }, 30_000);

  it('wakes a session that is suspended, and says when it has ended', async () => {
    const reply = await api.post('/v1/sessions', { name: 'sleeper' });
    const { id } = reply.json;
    await api.post(`/v1/sessions/${id}/execs`, {
      command: 'exec python3 -m http.server --bind 127.0.0.1 8000',
    });
    const statusOf = async () => (await api.get(`/v1/sessions/${id}`)).json.status;
    const { token } = (await api.post(`/v1/sessions/${id}/ports/8000/token`, {})).json;
    const client = new PreviewClient(api.url, id, 8000, token);
    await until(async () => (await client.get('/')).status === 200, { timeoutMs: 30_000 });
    await api.post(`/v1/sessions/${id}/suspend`);
    await until(async () => (await statusOf()) === 'suspended', { timeoutMs: 30_000 });
    expect(await client.get('/', { token: null })).toMatchObject({ status: 401 });
    expect(await statusOf()).toBe('suspended');
    expect(await client.get('/')).toMatchObject({ status: 200 });
    expect(await statusOf()).toBe('running');
    await api.post(`/v1/sessions/${id}/stop?grace=0s`);
    await until(async () => (await statusOf()) === 'stopped', { timeoutMs: 30_000 });
    const page = await client.get('/', { headers: { accept: 'text/html' } });
    expect(page).toMatchObject({ status: 410 });
    expect(page.text).toContain('The session has ended');
  }, 120_000);
});

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** The log as the waiting page puts it together. */
const logIn = (events: string): string =>
  [...events.matchAll(/event: log\ndata: (.*)\n/g)]
    .map(([, data = '{}']) => Buffer.from(JSON.parse(data).b64, 'base64').toString())
    .join('');
