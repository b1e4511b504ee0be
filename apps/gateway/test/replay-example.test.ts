import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { sessionStream } from '@vmux/events';
import { freePort, projectRoot, releaseAll, releaseLater, until } from '@vmux/testing';
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
let port: string;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  await startService(stack);
  port = String(await freePort());
  gateway = await startGateway(stack, 'gateway-1', { VMUX_PORT: port });
}, 60_000);
afterAll(releaseAll);

const replay = (session: string, ...options: string[]) => {
  const child = spawn(
    process.execPath,
    [join(projectRoot(), 'examples/consumers/replay-session.mjs'), session, ...options],
    {
      env: {
        ...process.env,
        VMUX_URL: gateway.url,
        VMUX_API_KEY_FILE: join(stack.dir, 'gateway-1', 'api-key'),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  releaseLater(() => void child.kill('SIGKILL'));
  return { child, out: text(child.stdout), err: text(child.stderr), exit: once(child, 'exit') };
};
const run = async (session: string, command: string) => {
  const path = `/v1/sessions/${session}/execs?wait=20s`;
  expect((await gateway.api.post(path, { command })).status).toBe(200);
};
const placesIn = (lines: string) =>
  lines
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
    .map(({ revision, position, type }) => ({ revision, position, type }));
const placesOf = async (session: string) => {
  const places = [];
  for await (const { revision, position, type } of stack.store.read(sessionStream(session)))
    places.push({ revision, position: String(position), type });
  return places;
};

describe('replaying a session over REST', () => {
  it('gives its whole history, event by event', async () => {
    const { id } = (await gateway.api.post('/v1/sessions', { name: 'replayed' })).json;
    for (let n = 0; n < 3; n++) await run(id, `exec ${n}`);
    const { out, exit } = replay(id);
    expect(await exit).toEqual([0, null]);
    expect(placesIn(await out)).toEqual(await placesOf(id));
  });

  it('goes on where it was when the gateway was killed', async () => {
    const { id } = (await gateway.api.post('/v1/sessions', { name: 'followed' })).json;
    await run(id, 'before');
    const { child, out } = replay(id, '--follow');
    let seen = '';
    child.stdout.on('data', (data: Buffer) => {
      seen += data;
    });
    await until(() => seen.includes('ExecExited'));
    await gateway.process.kill('SIGKILL');
    gateway = await startGateway(stack, 'gateway-1', { VMUX_PORT: port });
    await run(id, 'after');
    const expected = await placesOf(id);
    await until(() => seen.split('\n').length > expected.length);
    child.kill('SIGKILL');
    expect(placesIn(await out)).toEqual(expected);
  });

  it('says what is wrong when there is no such session', async () => {
    const { err, exit } = replay('nothing-0000');
    expect(await exit).toEqual([1, null]);
    expect(await err).toContain('session_not_found');
  });
});
