import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  describeUnless,
  projectRoot,
  type RunningProcess,
  releaseAll,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { ApiClient } from '../support/api-client';
import { PreviewClient } from '../support/preview-client';

const isRoot = process.getuid?.() === 0;

/** Apps in real sandboxes, looked at through the gateway by their names. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('previews', () => {
  const dataDir = temporaryDirectory('previews');
  let stack: RunningProcess<string>;
  let api: ApiClient;
  let session: string;

  beforeAll(async () => {
    stack = await startProcess({
      command: process.execPath,
      args: [join(projectRoot(), 'dist/apps/cli/src/stack/main.js')],
      env: { ...process.env, VMUX_DATA_DIR: dataDir, VMUX_PORT: '0' },
      ready: (line) => /^vmux serves at (\S+)/.exec(line)?.[1],
      readyTimeoutMs: 60_000,
    });
    api = new ApiClient(stack.ready, readFileSync(join(dataDir, 'api-key'), 'utf8').trim());
    const reply = await api.post('/v1/sessions', { name: 'look' });
    expect(reply).toMatchObject({ status: 201 });
    session = reply.json.id;
  }, 90_000);
  afterAll(async () => {
    // Sandboxes outlive the stack: they end with their sessions.
    const { json } = await api.get('/v1/sessions?limit=100');
    for (const { id } of json.sessions) await api.post(`/v1/sessions/${id}/stop?grace=0s`);
    await until(() => readdirSync(join(dataDir, 'runner/ns/s')).length === 0, {
      timeoutMs: 30_000,
    });
    await releaseAll();
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
});
