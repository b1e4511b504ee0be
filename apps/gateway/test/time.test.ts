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

let stack: Stack;
let gateway: Gateway;
let runner: FakeRunner;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack, 'gateway-1', { VMUX_LIVE_SESSIONS: '50' });
}, 60_000);
afterAll(releaseAll);

async function runningSession(name: string): Promise<string> {
  const { id } = (await gateway.api.post('/v1/sessions', { name })).json;
  await until(async () => (await gateway.api.get(`/v1/sessions/${id}`)).json.status === 'running');
  return id;
}

const statusOf = async (id: string) => (await gateway.api.get(`/v1/sessions/${id}`)).json;

describe('what a session can be asked beside its commands', () => {
  it('rests and wakes, and looking at it never wakes it', async () => {
    const id = await runningSession('rests');
    expect((await gateway.api.post(`/v1/sessions/${id}/suspend`)).status).toBe(202);
    await until(async () => (await statusOf(id)).status === 'suspended');
    await gateway.api.get(`/v1/sessions/${id}/logs`);
    await gateway.api.get(`/v1/sessions/${id}/events`);
    expect((await statusOf(id)).status).toBe('suspended');
    const ran = await gateway.api.post(`/v1/sessions/${id}/execs?wait=20s`, { command: 'wake up' });
    expect(ran.json).toMatchObject({ status: 'exited', output: { stdout: { text: 'wake up' } } });
    expect((await statusOf(id)).status).toBe('running');
  });

  it('keeps a checkpoint under an id that its request’s key gives', async () => {
    const id = await runningSession('kept');
    const headers = { 'idempotency-key': 'checkpoint' };
    const path = `/v1/sessions/${id}/checkpoints`;
    const asked = await gateway.api.post(path, { name: 'before' }, headers);
    expect([asked.status, asked.json.checkpointId]).toEqual([202, expect.stringMatching(/^c/)]);
    expect((await gateway.api.post(path, { name: 'before' }, headers)).json).toEqual(asked.json);
    const taken = await until(async () =>
      (await statusOf(id)).checkpoints.find(({ status }: { status: string }) => status === 'taken'),
    );
    expect(taken).toMatchObject({ id: asked.json.checkpointId, name: 'before', bytes: 1000 });
    const missing = { checkpointId: 'c000000000000' };
    const refused = await gateway.api.post(`/v1/sessions/${id}/rollback`, missing);
    expect([refused.status, refused.json.code]).toEqual([404, 'checkpoint_not_found']);
    // This runner puts nothing into the store.
    const collected = await gateway.api.post('/v1/artifacts/collect');
    expect([collected.status, collected.json.code]).toEqual([409, 'checkpoint_unusable']);
  });

  it('forks into sessions of their own', async () => {
    const id = await runningSession('parent');
    const asked = await gateway.api.post(`/v1/sessions/${id}/fork`, { count: 2, name: 'child' });
    expect(asked.status).toBe(202);
    const forks = await until(async () => {
      const found = (await statusOf(id)).forks as string[];
      return found.length === 2 && found;
    });
    for (const child of forks) {
      const shown = await until(
        async () => (await statusOf(child)).status === 'running' && statusOf(child),
      );
      expect(shown).toMatchObject({ name: 'child', owner: 'local', lineage: { parent: id } });
    }
  });

  it('is answered from its key, also when more has run since than can be run again', async () => {
    const id = await runningSession('replays');
    const path = `/v1/sessions/${id}/rehydrate`;
    const [body, headers] = [{ replay: true, force: true }, { 'idempotency-key': 'replay' }];
    const run = async (letter: string) => {
      const command = letter.repeat(100_000);
      const ran = await gateway.api.post(`/v1/sessions/${id}/execs?wait=20s`, { command });
      expect(ran.json.status).toBe('exited');
    };
    for (const letter of 'abc') await run(letter);
    const first = await gateway.api.post(path, body, headers);
    expect([first.status, first.json.replayed]).toEqual([202, 3]);
    for (const letter of 'def') await run(letter);
    const again = await gateway.api.post(path, body, headers);
    expect([again.status, again.json]).toEqual([202, first.json]);
    const anew = await gateway.api.post(path, body);
    expect([anew.status, anew.json.code]).toEqual([409, 'checkpoint_unusable']);
  });

  it('is answered from its key, also when the provider that it named is there no longer', async () => {
    const elsewhere = startRunner(stack, { runnerId: 'fake-2', provider: 'docker' });
    const offered = async () => {
      const { runners } = (await gateway.api.get('/v1/runners')).json;
      return runners.some(
        ({ runnerId, providers }: { runnerId: string; providers: { available: boolean }[] }) =>
          runnerId === 'fake-2' && providers.some(({ available }) => available),
      );
    };
    await until(offered);
    const asked = [];
    for (const [verb, body] of [
      ['move', { provider: 'docker' }],
      ['fork', { provider: 'docker' }],
      ['rehydrate', { provider: 'docker', force: true }],
    ] as const) {
      const path = `/v1/sessions/${await runningSession(verb)}/${verb}`;
      const headers = { 'idempotency-key': verb };
      const first = await gateway.api.post(path, body, headers);
      expect([verb, first.status]).toEqual([verb, 202]);
      asked.push({ path, body, headers, first });
    }
    elsewhere.available = false;
    await until(async () => !(await offered()));
    for (const { path, body, headers, first } of asked) {
      const again = await gateway.api.post(path, body, headers);
      expect([path, again.status, again.json]).toEqual([path, 202, first.json]);
      const anew = await gateway.api.post(path, body);
      expect([path, anew.status]).not.toEqual([path, 202]);
    }
    const id = await runningSession('nowhere');
    const refused = await gateway.api.post(`/v1/sessions/${id}/move`, { provider: 'docker' });
    expect([refused.status, refused.json.code]).toEqual([503, 'no_placement']);
  });

  it('is refused what makes no sense now', async () => {
    const id = await runningSession('nonsense');
    const { status, json } = await gateway.api.post(`/v1/sessions/${id}/rehydrate`, {});
    expect([status, json.code]).toEqual([409, 'session_live']);
    expect(runner.faults).toEqual([]);
  });
});
