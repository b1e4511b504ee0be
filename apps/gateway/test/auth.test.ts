import { releaseAll, until } from '@vmux/testing';
import type { ApiClient } from '../../../test/support/api-client';
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
let session: string;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack);
  session = (await gateway.api.post('/v1/sessions', { name: 'mine' })).json.id;
}, 60_000);
afterAll(releaseAll);

async function keyWith(
  scopes: readonly string[],
  owner?: string,
): Promise<ApiClient & { id: string }> {
  const made = await gateway.api.post('/v1/api-keys', { name: 'test', scopes, owner });
  expect(made.status).toBe(201);
  return Object.assign(gateway.api.withKey(made.json.key), { id: made.json.id as string });
}

const paths = (id: string): readonly [string, string, unknown?][] => [
  ['POST', '/v1/sessions', { name: 'x' }],
  ['GET', '/v1/sessions'],
  ['GET', `/v1/sessions/${id}`],
  ['POST', `/v1/sessions/${id}/stop`],
  ['DELETE', `/v1/sessions/${id}`],
  ['POST', `/v1/sessions/${id}/tickets`],
  ['POST', `/v1/sessions/${id}/execs`, { command: 'x' }],
  ['GET', `/v1/sessions/${id}/execs`],
  ['GET', `/v1/sessions/${id}/execs/e000000000000`],
  ['GET', `/v1/sessions/${id}/execs/e000000000000/wait`],
  ['POST', `/v1/sessions/${id}/execs/e000000000000/cancel`],
  ['POST', `/v1/sessions/${id}/execs/e000000000000/signal`, { signal: 'SIGINT' }],
  ['GET', `/v1/sessions/${id}/stats`],
  ['GET', `/v1/sessions/${id}/logs`],
  ['GET', `/v1/sessions/${id}/shares`],
  ['GET', `/v1/sessions/${id}/shared`],
  ['POST', `/v1/sessions/${id}/shares`, { rights: ['logs'] }],
  ['DELETE', `/v1/sessions/${id}/shares/s000000000000`],
  ['GET', `/v1/sessions/${id}/events`],
  ['PUT', `/v1/bundles/${'0'.repeat(64)}`, new Uint8Array([1])],
  ['GET', '/v1/runners'],
  ['GET', '/v1/usage'],
  ['POST', '/v1/admin/rebuild'],
  ['GET', '/v1/api-keys'],
  ['POST', '/v1/api-keys', { name: 'x', scopes: ['admin'] }],
  ['DELETE', '/v1/api-keys/000000000000'],
];

describe('without a valid key', () => {
  it('every endpoint answers 401 and says how to send one', async () => {
    const nobody = gateway.api.withKey(null);
    for (const [method, path, body] of paths(session)) {
      const { status, json, headers } = await nobody.call(method, path, { body });
      expect([method, path, status, json.code]).toEqual([method, path, 401, 'unauthorized']);
      expect(json.hint).toContain('Authorization: Bearer');
      expect(headers.get('www-authenticate')).toContain('Bearer');
    }
  });

  it('a key of the right form with a wrong secret is refused, as is one that nobody made', async () => {
    const right = gateway.api.key ?? '';
    const wrong = `${right.slice(0, -2)}${right.endsWith('AA') ? 'BB' : 'AA'}`;
    const unknown = `vmux_000000000000_${'A'.repeat(43)}`;
    for (const key of [wrong, unknown, 'vmux_', 'x', `${right}x`]) {
      const { status, json } = await gateway.api.withKey(key).get(`/v1/sessions/${session}`);
      expect([status, json.code]).toEqual([401, 'unauthorized']);
    }
  });

  it('a key in the URL is no key', async () => {
    const key = encodeURIComponent(gateway.api.key ?? '');
    const nobody = gateway.api.withKey(null);
    for (const name of ['key', 'access_token', 'ticket'])
      expect((await nobody.get(`/v1/sessions/${session}/logs?${name}=${key}`)).status).toBe(401);
  });

  it('whoever tries too often has to wait', async () => {
    const nobody = gateway.api.withKey(null);
    const refused = await until(async () => {
      const replies = await Promise.all(
        Array.from({ length: 40 }, () => nobody.get('/v1/runners')),
      );
      return replies.find(({ status }) => status === 429);
    });
    expect(refused.json.code).toBe('rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await gateway.api.get('/v1/runners')).status).toBe(200);
    // The bucket fills again: what follows is refused for its key, not for its number.
    await until(async () => (await nobody.get('/v1/runners')).status === 401);
  });
});

describe('with another owner’s key', () => {
  it('every path of a session answers 404, as if it did not exist', async () => {
    const other = await keyWith(['sessions:read', 'sessions:write'], 'somebody-else');
    const missing = await other.get('/v1/sessions/none-0000');
    for (const [method, path, body] of paths(session).filter(([, each]) =>
      each.includes(session),
    )) {
      const { status, json } = await other.call(method, path, { body });
      expect([method, path, status]).toEqual([method, path, 404]);
      expect(json).toEqual(missing.json);
    }
    expect((await other.get('/v1/sessions')).json.sessions).toEqual([]);
    expect((await gateway.api.get(`/v1/sessions/${session}`)).json.status).not.toBe('stopping');
  });
});

describe('with a key of too narrow a scope', () => {
  it('reading does not allow changing', async () => {
    const reader = await keyWith(['sessions:read']);
    expect((await reader.get(`/v1/sessions/${session}`)).status).toBe(200);
    for (const [method, path, body] of paths(session)) {
      if (method === 'GET' && path !== '/v1/api-keys') continue;
      if (path.endsWith('/tickets')) continue;
      const { status, json } = await reader.call(method, path, { body });
      expect([method, path, status, json.code]).toEqual([method, path, 403, 'forbidden']);
    }
  });

  it('changing does not allow reading, neither directly nor as the answer to an exec', async () => {
    const writer = await keyWith(['sessions:write']);
    expect((await writer.get(`/v1/sessions/${session}`)).status).toBe(403);
    expect((await writer.get(`/v1/sessions/${session}/logs`)).status).toBe(403);
    const waited = await writer.post(`/v1/sessions/${session}/execs?wait=1s`, { command: 'x' });
    expect(waited.status).toBe(403);
  });

  it('an administrator of keys is no reader of sessions', async () => {
    const admin = await keyWith(['admin']);
    expect((await admin.get('/v1/api-keys')).status).toBe(200);
    expect((await admin.get(`/v1/sessions/${session}`)).status).toBe(403);
  });
});

describe('an API key', () => {
  it('is shown once, stored as a hash, and works at once on another gateway', async () => {
    const other = await startGateway(stack, 'gateway-2');
    const made = await gateway.api.post(
      '/v1/api-keys',
      { name: 'ci', scopes: ['sessions:read'] },
      { 'idempotency-key': 'make-ci' },
    );
    const { key, id } = made.json;
    expect((await other.api.withKey(key).get(`/v1/sessions/${session}`)).status).toBe(200);
    const again = await gateway.api.post(
      '/v1/api-keys',
      { name: 'ci', scopes: ['sessions:read'] },
      { 'idempotency-key': 'make-ci' },
    );
    expect(again.json).toEqual({ ...made.json, key: null });
    const changed = await gateway.api.post(
      '/v1/api-keys',
      { name: 'ci', scopes: ['admin'] },
      { 'idempotency-key': 'make-ci' },
    );
    expect([changed.status, changed.json.code]).toEqual([422, 'key_reused']);
    const stored: string[] = [];
    for await (const event of stack.store.read('api-keys')) stored.push(JSON.stringify(event.data));
    expect(stored.join('\n')).toContain(id);
    const secret = key.split('_').slice(2).join('_');
    expect(stored.join('\n')).not.toContain(secret);
    expect((await gateway.api.get('/v1/api-keys')).text).not.toContain(secret);
    await other.process.stop();
  });

  it('ends everywhere when it is revoked, open streams included', async () => {
    const other = await startGateway(stack, 'gateway-3');
    const reader = await keyWith(['sessions:read']);
    const elsewhere = other.api.withKey(reader.key);
    expect((await elsewhere.get(`/v1/sessions/${session}`)).status).toBe(200);
    const stream = elsewhere.events(`/v1/sessions/${session}/events?follow=1`);
    expect((await stream.next()).done).toBe(false);
    expect((await gateway.api.call('DELETE', `/v1/api-keys/${reader.id}`)).status).toBe(200);
    await until(async () => (await elsewhere.get(`/v1/sessions/${session}`)).status === 401);
    while (!(await stream.next().catch(() => ({ done: true }))).done);
    await other.process.stop();
  });

  it('that never was cannot be revoked', async () => {
    const { status, json } = await gateway.api.call('DELETE', '/v1/api-keys/000000000000');
    expect([status, json.code]).toEqual([404, 'api_key_not_found']);
  });
});

describe('a ticket', () => {
  it('lets a browser in once, for its session alone', async () => {
    const nobody = gateway.api.withKey(null);
    const ticketFor = async (id: string) =>
      (await gateway.api.post(`/v1/sessions/${id}/tickets`)).json.ticket as string;
    const ticket = await ticketFor(session);
    const path = `/v1/sessions/${session}/events?ticket=${ticket}`;
    expect((await nobody.get(path)).status).toBe(200);
    expect((await nobody.get(path)).status).toBe(401);
    const another = (await gateway.api.post('/v1/sessions', { name: 'another' })).json.id;
    const foreign = await ticketFor(another);
    expect((await nobody.get(`/v1/sessions/${session}/logs?ticket=${foreign}`)).status).toBe(401);
  });

  it('opens nothing but streams', async () => {
    const { ticket } = (await gateway.api.post(`/v1/sessions/${session}/tickets`)).json;
    const nobody = gateway.api.withKey(null);
    expect((await nobody.get(`/v1/sessions/${session}?ticket=${ticket}`)).status).toBe(401);
    const stop = await nobody.post(`/v1/sessions/${session}/stop?ticket=${ticket}`);
    expect(stop.status).toBe(401);
  });
});
