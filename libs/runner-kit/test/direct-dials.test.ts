import { existsSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import {
  projectRoot,
  releaseAll,
  releaseLater,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { DriverUnavailable, SupervisorClient } from '../src/index';
import { DirectDials, type DirectDialsSettings } from '../src/work/direct-dials';

const id = { sessionId: 'dials-9e55', epoch: 3, instance: 'abc' };
const supervisor = join(projectRoot(), 'dist/native/vmux-supervisor');
const never = new AbortController().signal;

/** A real supervisor with two ways to it; the direct one is opened by `open`. */
async function dialling(
  open: (pipe: () => Socket) => Promise<Duplex>,
  more: Partial<DirectDialsSettings> = {},
) {
  const directory = temporaryDirectory('dials');
  const socket = join(directory, 'socket');
  const flags = `--listen=${socket} --spool=${directory}/spool --epoch=3 --instance=abc`;
  await startProcess({
    command: '/bin/sh',
    args: ['-c', `echo up; exec ${supervisor} run ${flags}`],
    ready: (line) => line === 'up' || undefined,
  });
  await until(() => existsSync(socket));
  const usual = await SupervisorClient.connect(connect(socket), id);
  releaseLater(() => usual.close());
  const direct: Socket[] = [];
  const pipe = () => {
    const opened = connect(socket);
    direct.push(opened);
    return opened;
  };
  const asked: string[] = [];
  const openDirectPipe = () => {
    asked.push('opened');
    return open(pipe);
  };
  const log = (_: string, { reason }: Readonly<Record<string, unknown>> = {}) =>
    void asked.push(String(reason));
  const dials = new DirectDials({ id, driver: { openDirectPipe }, log, ...more });
  releaseLater(() => dials.stop());
  return { dials, usual, direct, asked };
}

/** Says one word to everybody. */
async function speaking(): Promise<number> {
  const server = createServer((socket) => socket.end('word').on('error', () => socket.destroy()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  releaseLater(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port was given');
  return address.port;
}

const heard = async (stream: Duplex): Promise<string> => {
  let text = '';
  for await (const piece of stream) text += piece;
  return text;
};

afterEach(releaseAll);

describe('connections to the ports of a sandbox', () => {
  it('go over one direct pipe, which is closed when nobody has used it for a while', async () => {
    const { dials, usual, direct, asked } = await dialling(async (pipe) => pipe(), { idleMs: 20 });
    const port = await speaking();
    const both = [dials.dial(port, usual, never), dials.dial(port, usual, never)];
    for (const stream of both) expect(await heard(await stream)).toBe('word');
    expect(direct).toHaveLength(1);
    await until(() => direct[0]?.destroyed);
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(asked).toEqual(['opened', 'opened']);
  });

  it('go the usual way while the direct pipe cannot be opened, which is not tried again at once', async () => {
    const { dials, usual, asked } = await dialling(async () => {
      throw new DriverUnavailable('no way');
    });
    const port = await speaking();
    for (let times = 0; times < 3; times += 1)
      expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(asked).toEqual(['opened', 'no way: try again']);
  });

  it('wait for the direct pipe no longer than they may', async () => {
    let finish: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const { dials, usual, direct } = await dialling(
      async (pipe) => {
        await held;
        return pipe();
      },
      { waitMs: 10 },
    );
    const port = await speaking();
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(direct).toHaveLength(0);
    finish();
    await until(async () => {
      await heard(await dials.dial(port, usual, never));
      return direct.length === 1;
    });
  });

  it('give up a direct pipe that never comes', async () => {
    const { dials, usual, asked } = await dialling(() => new Promise(() => undefined), {
      ...{ waitMs: 10, openWithinMs: 20 },
    });
    const port = await speaking();
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    await until(() => asked.length === 2);
    expect(asked[1]).toMatch(/timeout/);
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(asked).toHaveLength(2);
  });

  it('are made again the usual way when the direct pipe breaks before they are there', async () => {
    const { dials, usual, direct, asked } = await dialling(async (pipe) => pipe());
    const port = await speaking();
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    const dialled = dials.dial(port, usual, never);
    // The request is out on the next tick and its answer cannot be here yet.
    process.nextTick(() => process.nextTick(() => direct[0]?.destroy()));
    expect(await heard(await dialled)).toBe('word');
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(asked).toEqual(['opened', 'opened']);
    direct[1]?.destroy();
    // Twice in a row it did not last: it is left alone.
    await until(() => asked.length === 3);
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(direct).toHaveLength(2);
  });

  it('are made the usual way when the direct pipe says nothing', async () => {
    const { dials, usual, direct } = await dialling(async (pipe) => pipe(), {
      answerWithinMs: 50,
    });
    const port = await speaking();
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    direct[0]?.pause();
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(direct).toHaveLength(1);
  });

  it('are refused once when nothing listens', async () => {
    const { dials, usual, asked } = await dialling(async (pipe) => pipe());
    const port = await speaking();
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port: closed } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    await expect(dials.dial(closed, usual, never)).rejects.toMatchObject({ reason: 'system' });
    expect(await heard(await dials.dial(port, usual, never))).toBe('word');
    expect(asked).toEqual(['opened']);
  });
});
