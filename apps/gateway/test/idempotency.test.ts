import { randomUUID } from 'node:crypto';
import { StreamNotFound } from '@vmux/event-store';
import { sessionStream } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { CreateKeys } from '../src/application/create-keys';
import { SessionReader } from '../src/application/session-reader';

let stack: Stack;
let one: Gateway;
let two: Gateway;
let runner: FakeRunner;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  await startService(stack);
  [one, two] = await Promise.all([startGateway(stack, 'one'), startGateway(stack, 'two')]);
}, 60_000);
afterAll(releaseAll);

const keyed = (key: string = randomUUID()) => ({ 'idempotency-key': key });

async function runningSession(name: string): Promise<string> {
  const { id } = (await one.api.post('/v1/sessions', { name })).json;
  await until(async () => (await one.api.get(`/v1/sessions/${id}`)).json.status === 'running');
  return id;
}

async function eventsOf(id: string): Promise<string[]> {
  const types: string[] = [];
  for await (const { type } of stack.store.read(sessionStream(id))) types.push(type);
  return types;
}

describe('a change that is asked for twice under one key', () => {
  it('creates one session and gets the same answer, on any gateway, however the session has gone on', async () => {
    const headers = keyed();
    const body = { name: 'twice', env: { TOKEN: 'a secret' }, labels: { a: '1', b: '2' } };
    const first = await one.api.post('/v1/sessions', body, headers);
    await until(
      async () => (await one.api.get(`/v1/sessions/${first.json.id}`)).json.status === 'running',
    );
    const reordered = { labels: { b: '2', a: '1' }, env: { TOKEN: 'a secret' }, name: 'twice' };
    const again = await two.api.post('/v1/sessions', reordered, headers);
    expect([again.status, again.json]).toEqual([201, first.json]);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect(first.headers.get('idempotency-replayed')).toBeNull();
    expect(
      (await eventsOf(first.json.id)).filter((type) => type === 'SessionCreated'),
    ).toHaveLength(1);
  });

  it('runs a command once and gets the same answer', async () => {
    const id = await runningSession('exec-twice');
    const headers = keyed();
    const path = `/v1/sessions/${id}/execs`;
    const [first, again] = await Promise.all([
      one.api.post(path, { command: 'once' }, headers),
      two.api.post(path, { command: 'once' }, headers),
    ]);
    expect([again.status, again.json]).toEqual([201, first.json]);
    const ended = await one.api.get(`${path}/${first.json.id}/wait?wait=20s`);
    expect(ended.json.output.stdout.text).toBe('once');
    // Long after it ended, and with a wait this time: the same exec, nothing run again.
    const later = await two.api.post(`${path}?wait=20s`, { command: 'once' }, headers);
    expect(later.json).toEqual(ended.json);
    expect((await eventsOf(id)).filter((type) => type === 'ExecIssued')).toHaveLength(1);
    expect(
      [...runner.execs.values()].filter(({ sandbox }) => sandbox.sessionId === id),
    ).toHaveLength(1);
  });

  it('with another body is refused with 422', async () => {
    const id = await runningSession('other-body');
    const headers = keyed();
    const path = `/v1/sessions/${id}/execs`;
    await one.api.post(path, { command: 'a', env: { A: '1' } }, headers);
    for (const body of [
      { command: 'b', env: { A: '1' } },
      { command: 'a', env: { A: '2' } },
    ]) {
      const { status, json } = await two.api.post(path, body, headers);
      expect([status, json.code]).toEqual([422, 'key_reused']);
    }
    const create = keyed();
    await one.api.post('/v1/sessions', { name: 'bound', cwd: '/a' }, create);
    for (const body of [
      { name: 'bound', cwd: '/b' },
      { name: 'unbound', cwd: '/a' },
    ]) {
      for (const { api } of [one, two]) {
        const { status, json } = await api.post('/v1/sessions', body, create);
        expect([status, json.code]).toEqual([422, 'key_reused']);
      }
    }
  });

  it('of another path, or by another owner, is another change', async () => {
    const headers = keyed('shared');
    const [a, b] = await Promise.all([runningSession('path-a'), runningSession('path-b')]);
    const [first, second] = await Promise.all(
      [a, b].map((id) => one.api.post(`/v1/sessions/${id}/execs`, { command: 'x' }, headers)),
    );
    expect(first?.json.id).not.toBe(second?.json.id);
    const made = await one.api.post('/v1/api-keys', {
      ...{ name: 'other', owner: 'other', scopes: ['sessions:read', 'sessions:write'] },
    });
    const other = one.api.withKey(made.json.key);
    const mine = await one.api.post('/v1/sessions', { name: 'same', cwd: '/mine' }, headers);
    const theirs = await other.post('/v1/sessions', { name: 'same', cwd: '/theirs' }, headers);
    expect(theirs.status).toBe(201);
    expect(theirs.json.id).not.toBe(mine.json.id);
    expect(theirs.json.owner).toBe('other');
  });

  it('stops, cancels and signals once', async () => {
    const id = await runningSession('verbs');
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    runner.scripts.set('wait', () => finished);
    const { json: exec } = await one.api.post(`/v1/sessions/${id}/execs`, { command: 'wait' });
    const path = `/v1/sessions/${id}/execs/${exec.id}`;
    await until(async () => (await one.api.get(path)).json.status === 'running');
    for (const [verb, body, type] of [
      ['signal', { signal: 'SIGUSR1' }, 'ExecSignalRequested'],
      ['cancel', undefined, 'ExecCancelRequested'],
    ] as const) {
      const headers = keyed();
      const first = await one.api.post(`${path}/${verb}`, body, headers);
      const again = await two.api.post(`${path}/${verb}`, body, headers);
      expect(first.status).toBe(202);
      expect([again.status, again.json]).toEqual([202, first.json]);
      expect((await eventsOf(id)).filter((each) => each === type)).toHaveLength(1);
    }
    expect((await one.api.get(path)).json).toMatchObject({
      ...{ cancelRequested: true, cancelCause: 'request' },
    });
    finish();
    await until(async () => (await one.api.get(path)).json.status === 'exited');
    const headers = keyed();
    const stopped = await one.api.post(`/v1/sessions/${id}/stop`, undefined, headers);
    await until(async () => (await one.api.get(`/v1/sessions/${id}`)).json.status === 'stopped');
    const again = await two.api.post(`/v1/sessions/${id}/stop`, undefined, headers);
    expect([again.status, again.json]).toEqual([202, stopped.json]);
  });

  it('gets a key from the gateway when it brings none', async () => {
    const first = await one.api.post('/v1/sessions', { name: 'no-key' });
    const key = first.headers.get('idempotency-key') ?? '';
    expect(key).toMatch(/^[0-9a-f-]{36}$/);
    const again = await one.api.post('/v1/sessions', { name: 'no-key' }, keyed(key));
    expect(again.json).toEqual(first.json);
  });

  it('has a key of visible characters, or is refused', async () => {
    for (const key of ['', 'a b', 'x'.repeat(256), 'ü']) {
      const { status } = await one.api.post('/v1/sessions', { name: 'bad-key' }, keyed(key));
      expect([key, status]).toEqual([key, 400]);
    }
  });
});

describe('a refused request', () => {
  it('binds no key', async () => {
    const id = await runningSession('refused');
    const headers = keyed();
    const path = `/v1/sessions/${id}/execs`;
    expect((await one.api.post(path, { command: 'a', argv: ['a'] }, headers)).status).toBe(400);
    expect((await one.api.post(path, {}, headers)).status).toBe(400);
    expect((await one.api.post(path, { argv: ['fine'] }, headers)).status).toBe(201);
  });

  const lastOf = async (stream: string) => {
    try {
      const options = { direction: 'backwards', limit: 1 } as const;
      for await (const event of stack.store.read(stream, options)) return event;
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    return null;
  };

  it('binds no name either, once it is certain that nothing came of it', async () => {
    let now = Date.now();
    const sessions = new SessionReader(stack.store, () => undefined);
    const keys = new CreateKeys(
      stack.store,
      sessions,
      () => undefined,
      () => now,
    );
    await keys.bind('some-key', 'me', 'first');
    await keys.bind('some-key', 'me', 'first');
    await expect(keys.bind('some-key', 'me', 'second')).rejects.toMatchObject({
      code: 'key_reused',
    });
    const kept = () => lastOf('$$create-key-some-key');
    await until(async () => (await kept()) !== null);
    expect((await kept())?.data).toEqual({ $maxAge: 2 * 24 * 3600 });
    now += 61_000;
    await keys.bind('some-key', 'me', 'second');
    await expect(keys.bind('some-key', 'me', 'first')).rejects.toMatchObject({
      code: 'key_reused',
    });
  });

  it('says what is wrong, without repeating values', async () => {
    const secret = 'do-not-repeat-me';
    for (const body of [
      { name: 'UPPER', cwd: secret },
      { name: 'admin', cwd: secret },
      { provider: 'NO', env: { A: secret } },
      { env: { 'not a name': secret } },
      { env: { A: 1 } },
      { resources: { cpus: 'many' } },
      { labels: { ok: 1 } },
      { ports: [0] },
      { unknown: secret },
      { bundle: 'f'.repeat(64), cwd: secret },
    ]) {
      const { status, json, text } = await one.api.post('/v1/sessions', body);
      expect([400, 404]).toContain(status);
      expect(json.message.length).toBeGreaterThan(5);
      expect(text).not.toContain(secret);
    }
  });
});
