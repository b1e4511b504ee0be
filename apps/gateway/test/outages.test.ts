import { releaseAll, until } from '@vmux/testing';
import {
  type Gateway,
  type ServiceProcess,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

let stack: Stack;
let gateway: Gateway;
let service: ServiceProcess;
let session: string;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  service = await startService(stack);
  gateway = await startGateway(stack, 'gateway-1', { VMUX_COMMAND_TIMEOUT_MS: '1500' });
  session = (await gateway.api.post('/v1/sessions', { name: 'steady' })).json.id;
  await until(
    async () => (await gateway.api.get(`/v1/sessions/${session}`)).json.status === 'running',
  );
}, 60_000);
afterAll(releaseAll);

const exec = (key: string) =>
  gateway.api.post(`/v1/sessions/${session}/execs`, { command: 'x' }, { 'idempotency-key': key });

describe('while NATS is away', () => {
  it('changes are not admitted and say so, reads go on, and it recovers by itself', async () => {
    await stack.nats.kill();
    await until(async () => (await gateway.api.get('/ready')).status === 503);
    const { status, json, headers } = await exec('during-nats');
    expect([status, json.code]).toEqual([503, 'messaging_unavailable']);
    expect(json.hint).toContain('nothing was done');
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await gateway.api.get(`/v1/sessions/${session}`)).status).toBe(200);
    expect((await gateway.api.get(`/v1/sessions/${session}/logs`)).status).toBe(200);
    await stack.nats.restart();
    await until(async () => (await exec('during-nats')).status === 201);
    expect((await gateway.api.get('/ready')).json.ready).toBe(true);
  }, 60_000);
});

describe('while no session service listens', () => {
  it('changes are not admitted, and the next service takes them', async () => {
    await service.kill('SIGKILL');
    const { status, json } = await exec('no-service');
    expect([status, json.code]).toEqual([503, 'messaging_unavailable']);
    service = await startService(stack, 'two');
    await until(async () => (await exec('no-service')).status === 201);
  }, 60_000);
});

describe('while a session service has a request and does not answer', () => {
  it('the outcome is not known, and the same key finds it later', async () => {
    process.kill(service.pid, 'SIGSTOP');
    const { status, json } = await exec('hung');
    expect([status, json.code]).toEqual([504, 'outcome_unknown']);
    expect(json.hint).toContain('same Idempotency-Key');
    process.kill(service.pid, 'SIGCONT');
    const found = await until(async () => {
      const reply = await exec('hung');
      return reply.status === 201 && reply;
    });
    const execs = (await gateway.api.get(`/v1/sessions/${session}/execs`)).json.execs;
    expect(execs.filter(({ id }: { id: string }) => id === found.json.id)).toHaveLength(1);
  }, 60_000);
});

describe('while the event store is away', () => {
  it('nothing is admitted or shown, in clear words, and it recovers by itself', async () => {
    const following = gateway.api.events(`/v1/sessions/${session}/events?follow=1`);
    expect((await following.next()).done).toBe(false);
    await stack.events.kill();
    // Until this gateway has noticed, the outcome of a command that it passed on is not known.
    await until(async () => !(await gateway.api.get('/ready')).json.checks.store);
    for (const reply of [
      await exec('during-store'),
      await gateway.api.get(`/v1/sessions/${session}`),
      await gateway.api.get(`/v1/sessions/${session}/logs`),
      await gateway.api.post('/v1/sessions', { name: 'not-now' }),
    ]) {
      expect([reply.status, reply.json.code]).toEqual([503, 'store_unavailable']);
      expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(reply.text).not.toMatch(/esdb|127\.0\.0\.1:\d+|UNAVAILABLE/);
    }
    expect((await gateway.api.get('/health')).status).toBe(200);
    expect((await gateway.api.get('/ready')).json.checks).toEqual({
      messaging: true,
      store: false,
    });
    await stack.events.restart();
    await until(async () => (await exec('during-store')).status === 201, { timeoutMs: 20_000 });
    expect((await gateway.api.get(`/v1/sessions/${session}`)).status).toBe(200);
    // The stream that was open over the outage goes on with what happened since.
    const later: string[] = [];
    for await (const { data } of following) {
      later.push(data.type);
      if (later.filter((type) => type === 'ExecIssued').length === 4) break;
    }
    await until(async () => (await gateway.api.get('/ready')).json.ready);
  }, 90_000);
});
