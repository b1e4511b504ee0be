import { statSync } from 'node:fs';
import { join } from 'node:path';
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
  gateway = await startGateway(stack);
}, 60_000);
afterAll(releaseAll);

describe('a gateway', () => {
  it('creates a session, runs a command in it, and gives back its output and its exit', async () => {
    const { api } = gateway;
    const created = await api.post('/v1/sessions', { name: 'thin' });
    expect(created.json).toMatchObject({ name: 'thin', status: 'starting', owner: 'local' });
    expect(created.status).toBe(201);
    const id = created.json.id;
    expect(created.headers.get('location')).toBe(`/v1/sessions/${id}`);
    const ran = await api.post(`/v1/sessions/${id}/execs?wait=20s`, { command: 'hello world' });
    expect(ran.json).toMatchObject({
      status: 'exited',
      exit: { kind: 'exited', code: 0 },
      output: { stdout: { text: 'hello world', encoding: 'utf8', truncated: false, next: 11 } },
    });
    expect(ran.status).toBe(200);
    const shown = await api.get(`/v1/sessions/${id}`);
    expect(shown.json).toMatchObject({ id, status: 'running', execs: { total: 1, open: 0 } });
    expect(runner.faults).toEqual([]);
  });

  it('creates nothing for who says more about it than it understands', async () => {
    const asked = await gateway.api.post('/v1/sessions?pretend=1', { name: 'pretended' });
    expect([asked.status, asked.json.code]).toEqual([400, 'invalid_request']);
  });

  it('serves the log raw and as events, whole and from an offset', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'logs' })).json;
    const ran = await api.post(`/v1/sessions/${id}/execs?wait=20s`, { command: '0123456789' });
    const raw = await api.raw(`/v1/sessions/${id}/logs?offset=4`);
    expect(raw.bytes.toString()).toBe('456789');
    expect(raw.trailers).toEqual({ 'vmux-next-offset': '10', 'vmux-log-end': 'live' });
    expect(raw.headers).toMatchObject({
      'content-disposition': `attachment; filename="${id}.log"`,
      'x-content-type-options': 'nosniff',
      'content-security-policy': "sandbox; default-src 'none'",
    });
    const seen = [];
    const path = `/v1/sessions/${id}/logs?exec=${ran.json.id}&stream=stdout&follow=1`;
    for await (const message of api.events(path)) seen.push(message);
    expect(seen).toMatchObject([
      { event: 'message', data: { stream: 'stdout', offset: 0, b64: 'MDEyMzQ1Njc4OQ==' } },
      { event: 'end', data: { next: 10, over: true } },
    ]);
    expect(seen[0]?.id).toMatch(/^10@\d+$/);
  });

  it('streams an exec as it goes and closes with its exit', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'streamed' })).json;
    runner.scripts.set('two', async (exec) => {
      await exec.write('stdout', 'one ');
      await exec.write('stderr', 'two');
      await exec.exit(3);
    });
    const seen = [];
    const options = { method: 'POST', body: { command: 'two' } };
    for await (const message of api.events(`/v1/sessions/${id}/execs`, options)) seen.push(message);
    expect(seen).toMatchObject([
      { event: 'message', data: { stream: 'stdout', offset: 0, b64: 'b25lIA==' } },
      { event: 'message', data: { stream: 'stderr', offset: 4, b64: 'dHdv' } },
      { event: 'exit', data: { exit: { kind: 'exited', code: 3 } } },
    ]);
  });

  it('replays the history as JSON lines', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'history' })).json;
    await until(async () => (await api.get(`/v1/sessions/${id}`)).json.status === 'running');
    const { text } = await api.get(`/v1/sessions/${id}/events?from=1`);
    const types = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).type);
    expect(types).toEqual(['SandboxRequested', 'SandboxStarted']);
  });

  it('lists sessions once the list shows the position that a change returned', async () => {
    const { api } = gateway;
    const { id, position } = (
      await api.post('/v1/sessions', { name: 'listed', labels: { team: 'red' } })
    ).json;
    const listed = await api.get(`/v1/sessions?after=${position}&label=team%3Dred`);
    expect(listed.json.sessions).toMatchObject([{ id, labels: { team: 'red' } }]);
  });

  it('adds up what was used, and builds its lists again when it is told to', async () => {
    const { api } = gateway;
    const shown = { sessions: 5, execs: 3, outputBytes: 28 };
    const used = () =>
      until(async () => {
        const { json } = await api.get('/v1/usage');
        return json.outputBytes === shown.outputBytes && json;
      });
    expect(await used()).toMatchObject(shown);
    expect((await api.post('/v1/admin/rebuild')).status).toBe(202);
    expect(await used()).toMatchObject(shown);
  });

  it('stops a session, and then deletes it for good', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'stopped' })).json;
    await until(async () => (await api.get(`/v1/sessions/${id}`)).json.status === 'running');
    expect((await api.call('DELETE', `/v1/sessions/${id}`)).json.code).toBe('session_live');
    expect((await api.post(`/v1/sessions/${id}/stop`)).json).toMatchObject({ status: 'stopping' });
    await until(async () => (await api.get(`/v1/sessions/${id}`)).json.status === 'stopped');
    expect((await api.call('DELETE', `/v1/sessions/${id}`)).status).toBe(202);
    await until(async () => (await api.get(`/v1/sessions/${id}`)).status === 410);
  });

  it('writes the local user’s key for that user alone', () => {
    expect(statSync(join(stack.dir, 'gateway-1', 'api-key')).mode & 0o777).toBe(0o600);
  });
});
