import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { SupervisorClient } from '@vmux/runner-kit';
import {
  projectRoot,
  type RunningProcess,
  releaseAll,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import WebSocket from 'ws';
import { WebSocketPipe } from '../../../workers/cloudflare/container/web-socket-pipe';
import { ENTRY_HEADERS } from '../../../workers/cloudflare/src/entry-client';

const token = 'the-token-of-this-container';
const name = { sessionId: 'contained', epoch: 3, instance: 'i1' };
const limits = { cpus: 1, memoryMiB: 128, diskMiB: 128, pids: 64 };

afterAll(releaseAll);

describe('the program that a Cloudflare container starts with', () => {
  let program: string;
  let container: RunningProcess<{ readonly port: number }>;
  let url: string;
  const start = async () => {
    const dir = temporaryDirectory('container');
    container = await startProcess({
      command: process.execPath,
      args: [program],
      env: {
        PATH: process.env.PATH,
        VMUX_ENTRY_TOKEN: token,
        VMUX_ENTRY_HOST: '127.0.0.1',
        VMUX_ENTRY_PORT: '0',
        VMUX_ENTRY_DIR: join(dir, 'ours'),
        VMUX_SUPERVISOR: join(projectRoot(), 'dist/native/vmux-supervisor'),
        VMUX_CGROUP: join(dir, 'no-cgroup-here'),
      },
      ready: (line) => (line.startsWith('{"ready"') ? JSON.parse(line) : undefined),
    });
    url = `http://127.0.0.1:${container.ready.port}`;
  };
  const ask = (path: string, init: RequestInit = {}, headers: Record<string, string> = {}) =>
    fetch(`${url}${path}`, {
      ...init,
      headers: { [ENTRY_HEADERS.token]: token, ...headers },
    });
  const launch = async (): Promise<string> => {
    const body = JSON.stringify({ name, limits });
    const answer = await ask('/launch', { method: 'POST', body });
    return ((await answer.json()) as { boot: string }).boot;
  };
  const pipeTo = async (boot: string, onNotice?: (text: string) => void) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/pipe`, {
      headers: { [ENTRY_HEADERS.token]: token, [ENTRY_HEADERS.boot]: boot },
    });
    const pipe = new WebSocketPipe(socket, onNotice);
    await new Promise((resolve, reject) => {
      socket.once('open', resolve);
      pipe.once('error', reject);
    });
    return pipe;
  };

  beforeAll(() => {
    const image = temporaryDirectory('image');
    const prepare = join(projectRoot(), 'workers/cloudflare/prepare-image.mjs');
    execFileSync(process.execPath, [prepare, image]);
    program = join(image, 'entry.js');
  });
  beforeEach(start);
  afterEach(() => container.kill());

  it('launches one supervisor, once, and carries bytes to it', async () => {
    const boot = await launch();
    expect(await launch()).toBe(boot);
    const other = JSON.stringify({ name: { ...name, instance: 'i2' }, limits });
    expect((await ask('/launch', { method: 'POST', body: other })).status).toBe(409);
    const client = await SupervisorClient.connect(await pipeTo(boot), name);
    await client.start({ execId: 'e1', argv: ['/bin/sh', '-c', 'echo $VMUX_ENTRY_TOKEN hello'] });
    let text = '';
    for await (const item of client.read('e1')) if ('data' in item) text += item.data;
    expect(text).toBe('hello\n');
    const status = await (await ask('/status')).json();
    expect(status).toEqual({ boot, name, pipes: 1, runningExecs: 0, isEvicting: false });
    client.close();
  });

  it('answers nobody without its token or for another boot', async () => {
    const boot = await launch();
    expect((await fetch(`${url}/status`)).status).toBe(401);
    const wrong = { [ENTRY_HEADERS.token]: 'x'.repeat(token.length) };
    expect((await fetch(`${url}/status`, { headers: wrong })).status).toBe(401);
    await expect(pipeTo('another-boot')).rejects.toThrow('410');
    const fence = { method: 'POST' };
    expect((await ask('/fence', fence, { [ENTRY_HEADERS.boot]: 'another' })).status).toBe(410);
    expect((await ask('/fence', fence, { [ENTRY_HEADERS.boot]: boot })).status).toBe(200);
  });

  it('passes SIGTERM on as a notice and goes on working', async () => {
    const boot = await launch();
    const notices: string[] = [];
    const client = await SupervisorClient.connect(
      await pipeTo(boot, (text) => notices.push(text)),
      name,
    );
    process.kill(container.pid, 'SIGTERM');
    await until(() => notices.length > 0);
    expect(JSON.parse(notices[0] ?? '')).toEqual({
      notice: 'evicting',
      deadlineAtMs: expect.any(Number),
    });
    await client.ping();
    client.close();
  });

  it('ends with its supervisor', async () => {
    const boot = await launch();
    const client = await SupervisorClient.connect(await pipeTo(boot), name);
    await client.quit();
    expect(await container.exited).toEqual({ code: 0, signal: null });
  });
});
