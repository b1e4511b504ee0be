import { releaseAll, until } from '@vmux/testing';
import { ApiClient } from '../../../test/support/api-client';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

let stack: Stack;
let runner: FakeRunner;
let gateways: Gateway[];
let api: ApiClient;
let id: string;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  await startService(stack);
  gateways = [await startGateway(stack, 'one'), await startGateway(stack, 'two')];
  api = (gateways[0] as Gateway).api;
  id = await session('shared');
});
afterAll(releaseAll);

async function session(name: string): Promise<string> {
  const { json } = await api.post('/v1/sessions', { name });
  await until(async () => (await api.get(`/v1/sessions/${json.id}`)).json.status === 'running');
  return json.id;
}

async function granted(rights: readonly string[], more = {}) {
  const { status, json } = await api.post(`/v1/sessions/${id}/shares`, { rights, ...more });
  expect(status).toBe(201);
  expect(json.token).toMatch(/^vmuxshare_s[0-9a-f]{12}_[\w-]{43}$/);
  return { shareId: json.id as string, token: json.token as string, as: api.withKey(json.token) };
}

describe('a share', () => {
  it('shows its token once, and keeps only a hash of it that nobody is shown', async () => {
    const body = { rights: ['logs'] };
    const headers = { 'idempotency-key': 'share-once' };
    const first = await api.post(`/v1/sessions/${id}/shares`, body, headers);
    const again = await api.post(`/v1/sessions/${id}/shares`, body, headers);
    expect(again.json).toMatchObject({ id: first.json.id, token: null });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    const listed = await api.get(`/v1/sessions/${id}/shares`);
    expect(listed.json.shares.map((share: { id: string }) => share.id)).toContain(first.json.id);
    const shown = [listed.text, (await api.get(`/v1/sessions/${id}`)).text];
    shown.push((await api.get(`/v1/sessions/${id}/events`)).text);
    const secret = first.json.token.slice(-43);
    for (const text of shown) {
      expect(text).not.toContain(secret);
      expect(text).not.toContain('tokenHash');
      expect(text).toContain(first.json.id);
    }
  });

  it('reads logs on any gateway with the right to, and nothing else', async () => {
    const { as } = await granted(['logs']);
    const other = new ApiClient((gateways[1] as Gateway).url, as.key);
    await api.post(`/v1/sessions/${id}/execs?wait=30s`, { command: 'for everyone' });
    for (const client of [as, other])
      expect((await client.get(`/v1/sessions/${id}/logs`)).text).toContain('for everyone');
    expect((await as.get(`/v1/sessions/${id}/shared`)).json).toMatchObject({
      ...{ id, status: 'running', rights: ['logs'], terminals: [], ports: [] },
    });
    const refused = [
      ['GET', `/v1/sessions/${id}`],
      ['GET', `/v1/sessions/${id}/events`],
      ['GET', `/v1/sessions/${id}/execs`],
      ['GET', `/v1/sessions/${id}/shares`],
      ['GET', `/v1/sessions/${id}/files/list?path=/`],
      ['POST', `/v1/sessions/${id}/execs`],
      ['POST', `/v1/sessions/${id}/shares`],
      ['POST', `/v1/sessions/${id}/stop`],
      ['DELETE', `/v1/sessions/${id}`],
      ['GET', '/v1/sessions'],
      ['GET', '/v1/api-keys'],
    ] as const;
    for (const [method, path] of refused) {
      const { status, json } = await as.call(method, path, method === 'POST' ? { body: {} } : {});
      expect([method, path, status, json.code]).toEqual([method, path, 401, 'unauthorized']);
    }
    const elsewhere = await session('elsewhere');
    expect((await as.get(`/v1/sessions/${elsewhere}/logs`)).status).toBe(401);
  });

  it('shows a terminal with the right to watch, and no other output', async () => {
    runner.scripts.set('screen', (exec) => exec.write('pty', 'a screen'));
    const pty = { command: 'screen', pty: { cols: 80, rows: 24 } };
    const { json } = await api.post(`/v1/sessions/${id}/execs?wait=30s`, pty);
    const { as } = await granted(['watch']);
    const screen = await as.get(`/v1/sessions/${id}/logs?exec=${json.id}&stream=pty`);
    expect(screen.text).toBe('a screen');
    for (const query of ['', `?exec=${json.id}`, `?exec=${json.id}&stream=stdout`]) {
      const { status, json: error } = await as.get(`/v1/sessions/${id}/logs${query}`);
      expect([query, status, error.code]).toEqual([query, 403, 'forbidden']);
    }
    const ports = await granted(['ports'], { ports: [8080] });
    expect((await ports.as.get(`/v1/sessions/${id}/logs`)).status).toBe(403);
  });

  it('opens a stream by ticket, and is cut with it when it is revoked on another gateway', async () => {
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    runner.scripts.set('slow', async (exec) => {
      await exec.write('stdout', 'begun');
      await finished;
    });
    const { json } = await api.post(`/v1/sessions/${id}/execs`, { command: 'slow' });
    const { as, shareId } = await granted(['logs']);
    const ticket = await as.post(`/v1/sessions/${id}/tickets`, {});
    const path = `/v1/sessions/${id}/logs?exec=${json.id}&follow=1`;
    const streams = [
      api.withKey(null).events(`${path}&ticket=${ticket.json.ticket}`),
      as.events(path),
    ];
    for (const stream of streams) {
      const first = await stream.next();
      expect(Buffer.from(first.value?.data.b64, 'base64').toString()).toBe('begun');
    }
    const revoker = (gateways[1] as Gateway).api.withKey(api.key);
    const revoked = await revoker.call('DELETE', `/v1/sessions/${id}/shares/${shareId}`);
    expect(revoked.json).toMatchObject({ id: shareId, revokedAt: expect.any(String) });
    for (const stream of streams)
      for (let step = await stream.next(); !step.done; step = await stream.next())
        expect(step.value.event).not.toBe('end');
    expect((await as.get(`/v1/sessions/${id}/logs`)).status).toBe(401);
    finish();
  });

  it('opens nothing once it has expired, and cuts what it opened', async () => {
    const { as } = await granted(['logs'], { expiresIn: '3s' });
    const stream = as.events(`/v1/sessions/${id}/logs?follow=1`);
    for (let step = await stream.next(); !step.done; step = await stream.next())
      expect(step.value.event).not.toBe('end');
    expect((await as.get(`/v1/sessions/${id}/logs`)).status).toBe(401);
  });

  it('is refused when its words make no sense', async () => {
    const bad = [
      { rights: [] },
      { rights: ['all'] },
      { rights: ['logs'], ports: [80] },
      { rights: ['logs'], expiresIn: '721h' },
      { rights: ['ports'], ports: [0] },
    ];
    for (const body of bad)
      expect((await api.post(`/v1/sessions/${id}/shares`, body)).status).toBe(400);
    const gone = await api.call('DELETE', `/v1/sessions/${id}/shares/s000000000000`);
    expect([gone.status, gone.json.code]).toEqual([404, 'share_not_found']);
  });
});
