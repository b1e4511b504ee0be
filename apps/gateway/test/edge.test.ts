import { once } from 'node:events';
import { connect } from 'node:net';
import { releaseAll, until } from '@vmux/testing';
import type { Reply } from '../../../test/support/api-client';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

let stack: Stack;
let gateway: Gateway;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack, 'gateway-1', {
    VMUX_LIVE_SESSIONS: '3',
    VMUX_REQUEST_BURST: '100',
    VMUX_REQUESTS_PER_SECOND: '50',
    VMUX_MAX_FOLLOWERS: '2',
  });
}, 60_000);
afterAll(releaseAll);

/** Writes the text as it is and returns the answer as it is. */
async function spoken(text: string): Promise<string> {
  const socket = connect(gateway.port, '127.0.0.1');
  let answer = '';
  socket.on('data', (data) => {
    answer += data.toString('latin1');
  });
  socket.on('error', () => undefined);
  socket.write(text);
  await once(socket, 'close');
  return answer;
}

const get = (path: string, ...headers: readonly string[]) =>
  spoken(`GET ${path} HTTP/1.1\r\n${headers.join('\r\n')}\r\nConnection: close\r\n\r\n`);

describe('a Host header', () => {
  it('that is not one of the gateway’s names gets 421, whatever the path', async () => {
    for (const host of [
      'evil.example',
      'localhost.evil.example',
      '127.0.0.1.nip.io',
      'xlocalhost',
    ]) {
      for (const path of ['/health', '/v1/sessions', '/docs', '/nothing']) {
        const answer = await get(path, `Host: ${host}:${gateway.port}`);
        expect(answer).toMatch(/^HTTP\/1\.1 421 /);
        expect(answer).toContain('"code":"misdirected"');
      }
    }
  });

  it('that is one of them is served, with any port', async () => {
    for (const host of ['localhost', `127.0.0.1:${gateway.port}`, 'LOCALHOST:1', '[::1]:80'])
      expect(await get('/health', `Host: ${host}`)).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('is a must', async () => {
    expect(await get('/health')).toMatch(/^HTTP\/1\.1 4\d\d /);
  });
});

describe('an upgrade', () => {
  const upgrade = (...headers: readonly string[]) =>
    get('/v1/attach', 'Connection: Upgrade', 'Upgrade: websocket', ...headers);

  it('from a page of another origin is refused', async () => {
    const answer = await upgrade(`Host: 127.0.0.1:${gateway.port}`, 'Origin: http://evil.example');
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
  });

  it('to another name is refused', async () => {
    expect(await upgrade('Host: evil.example')).toMatch(/^HTTP\/1\.1 421 /);
  });

  it('to what does not exist is refused', async () => {
    const own = `127.0.0.1:${gateway.port}`;
    expect(await upgrade(`Host: ${own}`, `Origin: http://${own}`)).toMatch(/^HTTP\/1\.1 404 /);
  });
});

/** The gateway of this file lets few requests through a second: the first answer that is about the request. */
const admitted = (call: () => Promise<Reply>): Promise<Reply> =>
  until(async () => {
    const reply = await call();
    return reply.json?.code !== 'rate_limited' && reply;
  });

describe('limits', () => {
  it('a body of more than a MiB gets 413', async () => {
    const { status, json } = await gateway.api.post('/v1/sessions', { cwd: 'x'.repeat(2 ** 20) });
    expect([status, json.code]).toEqual([413, 'body_too_large']);
  });

  it('headers of more than 16 KiB get 431', async () => {
    const answer = await get('/health', 'Host: localhost', `X-Long: ${'x'.repeat(20_000)}`);
    expect(answer).toMatch(/^HTTP\/1\.1 431 /);
    expect(answer).toContain('"code":"headers_too_large"');
  });

  it('what is no HTTP gets 400 in the same shape as every error', async () => {
    expect(await spoken('HELLO\r\n\r\n')).toContain('"code":"invalid_request"');
  });

  it('too many requests with one key get 429 with Retry-After, and then go on', async () => {
    const { api } = gateway;
    const refused = await until(async () => {
      const replies = await Promise.all(Array.from({ length: 60 }, () => api.get('/v1/runners')));
      return replies.find(({ status }) => status === 429);
    });
    expect(refused.json.code).toBe('rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    await until(async () => (await api.get('/v1/runners')).status === 200);
  });

  it('too many live sessions are refused with their names and how to stop them', async () => {
    const { api } = gateway;
    const ids: string[] = [];
    let position = '0';
    for (const name of ['q-one', 'q-two', 'q-three']) {
      const { json } = await until(async () => {
        const made = await api.post('/v1/sessions', { name }, { 'idempotency-key': name });
        return made.status === 201 && made;
      });
      ids.push(json.id);
      position = json.position;
    }
    await until(async () => (await api.get(`/v1/sessions?after=${position}`)).status === 200);
    const { status, json } = await admitted(() => api.post('/v1/sessions', { name: 'q-four' }));
    expect([status, json.code]).toEqual([429, 'quota_exceeded']);
    expect([...json.details.sessions].sort()).toEqual([...ids].sort());
    expect(json.details.stop).toContain(`POST /v1/sessions/${ids[0]}/stop`);
    expect(json.message).toContain('/stop');
    // A repeat is no new session.
    const again = await admitted(() =>
      api.post('/v1/sessions', { name: 'q-one' }, { 'idempotency-key': 'q-one' }),
    );
    expect([again.status, again.json.id]).toEqual([201, ids[0]]);
    await admitted(() => api.post(`/v1/sessions/${ids[0]}/stop`));
    await until(async () => (await api.post('/v1/sessions', { name: 'q-four' })).status === 201);
  });

  it('too many open streams are refused', async () => {
    const { api } = gateway;
    const { sessions } = (
      await until(async () => {
        const listed = await api.get('/v1/sessions');
        return listed.status === 200 && listed.json.sessions.length > 0 && listed;
      })
    ).json;
    const path = `/v1/sessions/${sessions[0].id}/events?follow=1`;
    const opened = () =>
      until(async () => {
        const stream = api.events(path);
        await stream.next();
        return stream;
      });
    const streams = [await opened(), await opened()];
    const third = await admitted(() => api.get(path));
    expect([third.status, third.json.code]).toEqual([429, 'too_many_followers']);
    for (const stream of streams) await stream.return(undefined);
    await until(async () => {
      const stream = api.events(path);
      const { done } = await stream.next();
      await stream.return(undefined);
      return !done;
    });
  });
});

describe('every answer', () => {
  it('has headers that keep browsers from guessing, framing, caching and leaking', async () => {
    const { headers } = await gateway.api.get('/v1/runners');
    expect(Object.fromEntries(headers)).toMatchObject({
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    });
  });

  it('allows no other origin', async () => {
    const { headers } = await gateway.api.get('/health', { origin: 'http://evil.example' });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
  });

  it('carries the request’s id, the given one or a new one', async () => {
    const given = await gateway.api.get('/health', { 'x-request-id': 'abc-1' });
    expect(given.headers.get('x-request-id')).toBe('abc-1');
    const made = await gateway.api.get('/health', { 'x-request-id': 'not well formed' });
    expect(made.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('that is an error has one shape, and no stack', async () => {
    for (const path of ['/nothing', '/v1/sessions/UPPER', '/v1/sessions/%00', '/v1/%ff', '//']) {
      const { status, json, text } = await gateway.api.get(path);
      expect(status).toBeGreaterThanOrEqual(400);
      expect(status).toBeLessThan(500);
      expect(Object.keys(json).sort()).toEqual(['code', 'details', 'hint', 'message']);
      expect(text).not.toMatch(/\bat .*:\d+:\d+|node_modules/);
    }
  });
});

describe('what runs the gateway', () => {
  it('finds its health, its readiness, its metrics and its description', async () => {
    const { api } = gateway;
    expect((await api.withKey(null).get('/health')).json).toEqual({ status: 'ok' });
    expect((await api.withKey(null).get('/ready')).json).toEqual({
      ready: true,
      checks: { messaging: true, store: true },
    });
    const metrics = await api.withKey(null).get('/metrics');
    expect(metrics.text).toContain('vmux_gateway_request_seconds_bucket');
    expect(metrics.text).toContain('vmux_gateway_messaging_connected 1');
    const openapi = await api.withKey(null).get('/openapi.json');
    expect(Object.keys(openapi.json.paths)).toContain('/v1/sessions/{sessionId}/logs');
    expect((await api.withKey(null).get('/docs')).text).toContain('swagger');
  });

  it('finds runners with what they offer and without their tunnel’s token', async () => {
    const { json, text } = await gateway.api.get('/v1/runners');
    expect(json.runners).toMatchObject([{ runnerId: 'fake-1', alive: true, draining: false }]);
    expect(json.capacity).toMatchObject({ runners: 1, maxSandboxes: 10_000 });
    expect(text).not.toContain('tunnel-token');
  });
});
