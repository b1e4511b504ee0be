import { spawnSync } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { describeUnless, projectRoot, releaseAll, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import { Newcomer } from '../support/front-door';
import { visited } from '../support/preview';

const isRoot = process.getuid?.() === 0;
const hasPython = spawnSync('python3', ['--version']).status === 0;

interface Reached {
  readonly session: string;
  readonly url: string;
  readonly localUrl: string;
}

describeUnless(isRoot && hasPython, 'needs python3, and root on Linux')('the examples', () => {
  let user: Newcomer;
  let examples: string;
  const vmux = (...args: string[]) => user.with({ cwd: examples }, ...args);
  const served = async (target: string): Promise<Reached> => {
    const { stdout, stderr } = await vmux('run', '-d', '--json', target);
    expect(stderr.replace(/^vmux: (starting|provider).*\n/gm, '')).toBe('');
    return JSON.parse(stdout) as Reached;
  };
  const tokenOf = ({ url }: Reached) => new URL(url).searchParams.get('token') ?? '';
  const headersOf = (reached: Reached) => ({
    host: new URL(reached.url).host,
    'x-vmux-preview-token': tokenOf(reached),
  });
  const placeOf = ({ url }: Reached) => ({ host: '127.0.0.1', port: new URL(url).port });

  beforeAll(() => {
    user = new Newcomer();
    examples = join(user.project, 'examples');
    cpSync(join(projectRoot(), 'examples'), examples, { recursive: true });
  });
  afterAll(releaseAll, 90_000);

  it('say hello, and count', async () => {
    expect(await vmux('run')).toMatchObject({
      ...{ code: 0, stdout: expect.stringMatching(/^hello from hello-[0-9a-f]{4}\nLinux /) },
    });
    const { code, stdout } = await vmux('run', 'job', '-e', 'STEPS=2', '-e', 'PAUSE=0');
    expect({ code, lines: stdout.split('\n').length }).toEqual({ code: 0, lines: 4 });
  }, 120_000);

  it('serve a page at a preview and at a port of this machine', async () => {
    const web = await served('web');
    const page = await until(async () => {
      const answer = await visited(new URL(web.url));
      return answer.status === 200 && answer.text;
    });
    expect(page).toContain('visit 1');
    const local = await fetch(web.localUrl);
    expect(await local.text()).toContain('visit 2');
    const { stdout } = await vmux('ports', web.session, '--json');
    expect(JSON.parse(stdout)).toMatchObject([{ port: 8000, open: true, public: false }]);
    await vmux('stop', web.session);
    await until(
      () =>
        fetch(web.localUrl).then(
          () => false,
          () => true,
        ),
      { timeoutMs: 20_000 },
    );
  }, 120_000);

  it('are open to everyone with --public, and reached while they run with --json', async () => {
    const running = user.start({ cwd: examples }, 'run', '--rm', '--public', '--json', 'web');
    await until(() => running.said.stdout.includes('\n'), { timeoutMs: 60_000 });
    const { url, localUrl } = JSON.parse(running.said.stdout) as Reached;
    expect(url).not.toContain('token');
    await until(async () => (await visited(new URL(url))).text.includes('visit'));
    expect(await (await fetch(localUrl)).text()).toContain('visit');
    running.child.kill('SIGTERM');
    const { code, stdout } = await running.ended;
    const [, last = ''] = stdout.split('\n');
    expect({ code, exit: JSON.parse(last).exit }).toEqual({
      ...{ code: 143, exit: { kind: 'signalled', signal: 'SIGTERM' } },
    });
  }, 120_000);

  it('echo over WebSocket, through the preview and through the forwarded port', async () => {
    const echo = await served('echo');
    const { host, port } = placeOf(echo);
    const said = async (url: string, headers: Record<string, string>) => {
      const socket = new WebSocket(url, { headers });
      try {
        return await new Promise<string>((resolve, reject) => {
          socket.once('open', () => socket.send('hé '.repeat(50_000)));
          socket.once('message', (message) => resolve(message.toString()));
          socket.once('error', reject);
        });
      } finally {
        socket.close();
      }
    };
    const whole = 'hé '.repeat(50_000);
    expect(await until(() => said(`ws://${host}:${port}/`, headersOf(echo)))).toBe(whole);
    expect(await said(echo.localUrl.replace('http', 'ws'), {})).toBe(whole);
  }, 120_000);

  it('tell by server-sent events that a file has been changed', async () => {
    const app = await served('node-app');
    await until(async () => (await visited(new URL(app.url))).text.includes('Change me'));
    const heard: string[] = [];
    const asking = request({ ...placeOf(app), path: '/changes', headers: headersOf(app) });
    asking.on('response', (answer) => {
      answer.setEncoding('utf8').on('data', (piece: string) => heard.push(piece));
      answer.on('error', () => undefined);
    });
    asking.on('error', () => undefined);
    asking.end();
    try {
      await until(() => heard.join('').includes(': watching'));
      const file = join(examples, 'node-app/index.html');
      writeFileSync(file, readFileSync(file, 'utf8').replace('Change me', 'Changed'));
      expect(await vmux('cp', 'node-app/index.html', `${app.session}:node-app/`)).toMatchObject({
        code: 0,
      });
      await until(() => heard.join('').includes('data: changed'));
    } finally {
      asking.destroy();
    }
    expect((await visited(new URL(app.url))).text).toContain('Changed');
  }, 120_000);

  it('say that a GPU needs a provider that is not here', async () => {
    for (const target of ['gpu', 'jupyter', 'vllm', 'image', 'whisper', 'embeddings', 'llm-chat'])
      expect(await vmux('run', target)).toMatchObject({
        ...{ code: 1, stdout: '' },
        stderr: expect.stringMatching(/^vmux: .*provider "?modal"?.*; available: ns.*\n$/),
      });
  }, 120_000);
});
