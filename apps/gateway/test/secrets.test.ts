import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
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
let runner: FakeRunner;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  const loud = { VMUX_LOG_LEVEL: 'trace' };
  service = await startService(stack, 'one', loud);
  gateway = await startGateway(stack, 'gateway-1', loud);
}, 60_000);
afterAll(releaseAll);

const SECRETS = {
  sessionEnv: 'planted-session-value-8d1f',
  execEnv: 'planted-exec-value-77aa',
  refusedEnv: 'planted-refused-value-41c2',
  output: 'planted-output-5be0',
};

describe('secrets', () => {
  it('reach the runner and stand nowhere else: not in logs, not in answers, not in the stored bytes', async () => {
    const { api } = gateway;
    const seen: Record<string, string>[] = [];
    runner.scripts.set('use it', async (exec) => {
      seen.push({ ...exec.env });
      await exec.write('stdout', SECRETS.output);
    });
    const created = await api.post('/v1/sessions', {
      name: 'secret',
      env: { TOKEN: SECRETS.sessionEnv },
    });
    const { id } = created.json;
    const ran = await api.post(`/v1/sessions/${id}/execs?wait=20s`, {
      command: 'use it',
      env: { PASSWORD: SECRETS.execEnv },
    });
    expect(seen).toEqual([{ TOKEN: SECRETS.sessionEnv, PASSWORD: SECRETS.execEnv }]);
    await api.post(`/v1/sessions/${id}/execs`, {
      command: 'x',
      env: { 'a b': SECRETS.refusedEnv },
    });
    await api.post('/v1/sessions', { env: { X: SECRETS.refusedEnv }, name: 'NOT A NAME' });
    const { ticket } = (await api.post(`/v1/sessions/${id}/tickets`)).json;
    expect((await api.withKey(null).get(`/v1/sessions/${id}/logs?ticket=${ticket}`)).text).toBe(
      SECRETS.output,
    );
    await api.withKey('vmux_000000000000_planted-key-that-is-wrong').get('/v1/sessions');
    await api.withKey(null).get('/v1/sessions?ticket=planted-ticket-in-a-url');

    expect(created.json.spec.env).toEqual(['TOKEN']);
    const shown = await api.get(`/v1/sessions/${id}/execs/${ran.json.id}`);
    expect(shown.json.spec.env).toEqual(['PASSWORD']);
    const history = (await api.get(`/v1/sessions/${id}/events`)).text;
    expect(history).toContain('"names":["TOKEN"]');
    expect(history).not.toContain('sealed');

    const values = [SECRETS.sessionEnv, SECRETS.execEnv, SECRETS.refusedEnv];
    // What follows the key's id; it may begin with the separator itself.
    const key = api.key?.split('_').slice(2).join('_') ?? '';
    expect(key.length).toBeGreaterThan(20);
    const answers = [created, ran, shown].map(({ text }) => text).join() + history;
    const logs = [
      gateway,
      { log: () => service.output() },
      { log: () => stack.events.output() },
      { log: () => stack.nats.output() },
    ]
      .map(({ log }) => log())
      .join('\n');
    expect(gateway.log()).toContain('"route":"/v1/sessions/:sessionId/execs"');
    for (const secret of [...values, ...values.map(inBase64), key, ticket, 'planted-']) {
      expect(logs).not.toContain(secret);
      if (secret !== 'planted-') expect(answers).not.toContain(secret);
    }
    const stored = filesBelow(stack.events.dir);
    expect(stored.some((bytes) => bytes.includes(id))).toBe(true);
    expect(stored.some((bytes) => bytes.includes(SECRETS.output))).toBe(true);
    for (const secret of [...values, ...values.map(inBase64), key, ticket])
      expect(stored.some((bytes) => bytes.includes(secret))).toBe(false);
  });

  it('are gone for good with their session: its key no longer exists', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'gone', env: { A: 'b' } })).json;
    const keyFile = join(stack.dir, 'keys', id);
    expect(statSync(keyFile).mode & 0o777).toBe(0o600);
    await api.call('DELETE', `/v1/sessions/${id}?force=true`);
    await until(async () => (await api.get(`/v1/sessions/${id}`)).status === 410);
    await until(() => !readdirSync(join(stack.dir, 'keys')).includes(id));
  });

  it('of equal requests leave no equal digests behind, so that nobody can guess from them', async () => {
    const { api } = gateway;
    const digests: unknown[] = [];
    for (const name of ['digest-a', 'digest-b']) {
      const { id } = (await api.post('/v1/sessions', { name })).json;
      const body = { command: 'same', env: { PIN: '1234' } };
      const { json } = await api.post(`/v1/sessions/${id}/execs`, body);
      for await (const { type, metadata } of stack.store.read(`session-${id}`))
        if (type === 'ExecIssued') digests.push(metadata.digest);
      expect(json.id).toMatch(/^e/);
    }
    expect(digests).toHaveLength(2);
    expect(digests[0]).not.toEqual(digests[1]);
  });
});

describe('a request’s id and trace context', () => {
  it('go with the command over NATS into the metadata of what it caused', async () => {
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const { json } = await gateway.api.post(
      '/v1/sessions',
      { name: 'traced' },
      { 'x-request-id': 'request-77', traceparent },
    );
    const [first] = (await gateway.api.get(`/v1/sessions/${json.id}/events?limit=1`)).text.split(
      '\n',
    );
    expect(JSON.parse(first ?? '')).toMatchObject({
      correlationId: 'request-77',
      traceparent,
      principal: expect.stringMatching(/^key:[0-9a-f]{12}$/),
    });
  });
});

const inBase64 = (text: string): string => Buffer.from(text).toString('base64').replace(/=+$/, '');

function filesBelow(dir: string): Buffer[] {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name)));
}
