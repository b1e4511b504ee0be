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
import { TerminalClient, type TerminalOptions } from '../support/terminal-client';

const isRoot = process.getuid?.() === 0;

/** Terminals through the gateway, the log, the tunnel, the runner and the supervisor. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('attaching', () => {
  const dataDir = temporaryDirectory('attach');
  let stack: RunningProcess<string>;
  let api: ApiClient;
  let session: string;
  const open: TerminalClient[] = [];

  beforeAll(async () => {
    stack = await startProcess({
      command: process.execPath,
      args: [join(projectRoot(), 'dist/apps/cli/src/stack/main.js')],
      env: { ...process.env, VMUX_DATA_DIR: dataDir, VMUX_PORT: '0' },
      ready: (line) => /^vmux serves at (\S+)/.exec(line)?.[1],
      readyTimeoutMs: 60_000,
    });
    api = new ApiClient(stack.ready, readFileSync(join(dataDir, 'api-key'), 'utf8').trim());
    const reply = await api.post('/v1/sessions', { name: 'attach' });
    expect(reply).toMatchObject({ status: 201 });
    session = reply.json.id;
  }, 90_000);
  afterEach(() => {
    for (const client of open.splice(0)) client.close();
  });
  afterAll(async () => {
    // Sandboxes outlive the stack: they end with their sessions.
    const { json } = await api.get('/v1/sessions?limit=100');
    for (const { id } of json.sessions) await api.post(`/v1/sessions/${id}/stop?grace=0s`);
    await until(() => readdirSync(join(dataDir, 'runner/ns/s')).length === 0, {
      timeoutMs: 30_000,
    });
    await releaseAll();
  }, 90_000);

  const pathOf = (exec: string) => `/v1/sessions/${session}/execs/${exec}/attach`;
  const attached = async (exec: string, options: TerminalOptions = {}) => {
    const client = await TerminalClient.open(api.url, pathOf(exec), { key: api.key, ...options });
    open.push(client);
    return client;
  };
  const issued = async (body: object) => {
    const reply = await api.post(`/v1/sessions/${session}/execs`, body);
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id as string;
  };
  const terminal = (command = 'exec sh -i', size = { cols: 80, rows: 24 }) =>
    issued({ command, pty: size, env: { PS1: '$ ', HISTFILE: '' } });

  it('shows the screen, takes what is typed, and tells the exit', async () => {
    const exec = await terminal();
    const client = await attached(exec, { query: { cols: 100, rows: 30 } });
    await until(() => client.hello, { timeoutMs: 10_000 });
    expect(client.hello).toMatchObject({ protocol: 1, execId: exec, mode: 'type' });
    client.type('echo $((6 * 7)); stty size\n');
    await client.shows(/^42\n30 100$/m);
    expect(client.taken).toBe(client.sent);
    client.type('exit 5\n');
    await client.ended();
    expect(client.exit).toMatchObject({ exit: { kind: 'exited', code: 5 }, next: client.next });
    expect(client.closed?.code).toBe(1000);
  }, 90_000);
});
