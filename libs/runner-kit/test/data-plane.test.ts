import { existsSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import {
  freePort,
  projectRoot,
  releaseAll,
  releaseLater,
  seededRandom,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { startTunnelServer, TunnelConnection, type TunnelRequest } from '@vmux/tunnel';
import { SupervisorClient } from '../src/index';
import { dataPlane } from '../src/tunnel/data-plane';

const sandbox = { sessionId: 'plane-9e55', epoch: 3, instance: 'abc' };
const supervisor = join(projectRoot(), 'dist/native/vmux-supervisor');

/** A real supervisor, as an ordinary process: its loopback is this machine's. */
async function supervised() {
  const directory = temporaryDirectory('plane');
  const socket = join(directory, 'socket');
  const flags = `--listen=${socket} --spool=${directory}/spool --epoch=3 --instance=abc`;
  await startProcess({
    command: '/bin/sh',
    args: ['-c', `echo up; exec ${supervisor} run ${flags}`],
    ready: (line) => line === 'up' || undefined,
  });
  await until(() => existsSync(socket));
  const client = await SupervisorClient.connect(connect(socket), { epoch: 3, instance: 'abc' });
  releaseLater(() => client.close());
  return client;
}

async function tunnelled({ allKnown = true, deadlines = {} } = {}) {
  const client = await supervised();
  const reported: unknown[] = [];
  const worker = {
    client: async () => client,
    dial: (port: number, usual: SupervisorClient, signal: AbortSignal) =>
      usual.dial(port, { signal }),
    report: async (body: unknown) => void reported.push(body),
  };
  const find = (sessionId: string, epoch: number) =>
    sessionId === sandbox.sessionId && epoch === sandbox.epoch
      ? { id: sandbox, worker }
      : undefined;
  const server = await startTunnelServer({
    host: '127.0.0.1',
    port: 0,
    serve: dataPlane({ allKnown, find }, () => undefined, deadlines),
    onFault: () => undefined,
  });
  releaseLater(() => server.close());
  const tunnel = await TunnelConnection.dial(server);
  releaseLater(() => tunnel.close());
  return { client, reported, open: (request: TunnelRequest) => tunnel.open(request) };
}

async function listening(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  releaseLater(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port was given');
  return address.port;
}

const collected = async (pieces: AsyncIterable<Buffer>) => {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
};

afterEach(releaseAll);

describe('the data plane of a runner', () => {
  const stat = { op: 'stat', path: '/', user: null, followLink: false } as const;

  it('serves the sandbox that it has and no other session, epoch or instance', async () => {
    const { open } = await tunnelled();
    expect(await open({ ...stat, sandbox }).result).toMatchObject({ type: 'directory' });
    for (const other of [
      { sessionId: 'other-0000' },
      { epoch: 2 },
      { epoch: 4 },
      { instance: 'b' },
    ])
      await expect(
        open({ ...stat, sandbox: { ...sandbox, ...other } }).result,
      ).rejects.toMatchObject({ code: 'stale_sandbox' });
  });

  it('tells what the sandbox uses, which counts as no activity', async () => {
    const { open, reported } = await tunnelled();
    expect(await open({ op: 'figures', sandbox }).result).toMatchObject({
      uptimeUs: expect.any(Number),
      runningExecs: 0,
    });
    expect(reported).toEqual([]);
  });

  it('does not wait for ever for a sandbox that stands still', async () => {
    const { client, open } = await tunnelled({ deadlines: { stat: 50 } });
    const never = new Promise<never>(() => undefined);
    const standsStill = jest
      .spyOn(client.files, 'stat')
      .mockImplementation((_, call) =>
        Promise.race([
          never,
          new Promise<never>((_resolve, reject) =>
            call?.signal?.addEventListener('abort', () => reject(call.signal?.reason)),
          ),
        ]),
      );
    await expect(open({ ...stat, sandbox }).result).rejects.toMatchObject({ code: 'unavailable' });
    standsStill.mockRestore();
  });

  it('asks for patience while it may not have found every sandbox', async () => {
    const { open } = await tunnelled({ allKnown: false });
    const unknown = open({ ...stat, sandbox: { ...sandbox, epoch: 9 } }).result;
    await expect(unknown).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('tunnels to a port inside, both ways, exactly, each direction with its own end', async () => {
    const { open } = await tunnelled();
    const port = await listening((socket) => {
      // Answers only after the other direction has ended.
      collected(socket.iterator({ destroyOnReturn: false })).then((all) =>
        socket.end(Buffer.concat([Buffer.from('got:'), all])),
      );
    });
    const sent = seededRandom(11).bytes(1_500_000);
    const stream = open({ op: 'dial', sandbox, port });
    const answer = collected(stream.receive());
    await stream.send(sent);
    stream.end();
    expect((await answer).equals(Buffer.concat([Buffer.from('got:'), sent]))).toBe(true);
    await stream.result;
  });

  it('goes on towards a port that has nothing more to say', async () => {
    const { open } = await tunnelled();
    let heard: Buffer | undefined;
    const port = await listening((socket) => {
      socket.end('no more from me');
      collected(socket.iterator({ destroyOnReturn: false })).then((all) => {
        heard = all;
      });
    });
    const sent = seededRandom(12).bytes(900_000);
    const stream = open({ op: 'dial', sandbox, port });
    expect(String(await collected(stream.receive()))).toBe('no more from me');
    await stream.send(sent);
    stream.end();
    await stream.result;
    await until(() => heard);
    expect(heard?.equals(sent)).toBe(true);
  });

  it('says so when nothing listens, and hangs up inside when the client goes', async () => {
    const { open } = await tunnelled();
    const refused = open({ op: 'dial', sandbox, port: await freePort() }).result;
    await expect(refused).rejects.toMatchObject({ code: 'port_refused' });
    const sockets: Socket[] = [];
    const port = await listening((socket) => {
      sockets.push(socket);
      socket.write('hello');
    });
    const stream = open({ op: 'dial', sandbox, port });
    const first = await stream.receive().next();
    expect(String(first.value)).toBe('hello');
    stream.cancel();
    await until(() => sockets[0]?.destroyed || sockets[0]?.readableEnded);
  });

  it('ends every stream with the pipe to the sandbox, as broken and never as done', async () => {
    const { client, open } = await tunnelled();
    const port = await listening((socket) => socket.write('hello'));
    const stream = open({ op: 'dial', sandbox, port });
    const pieces = stream.receive();
    await pieces.next();
    client.close();
    await expect(pieces.next()).rejects.toMatchObject({ code: 'interrupted' });
    await expect(open({ ...stat, sandbox }).result).rejects.toMatchObject({ code: 'interrupted' });
  });

  it('tells that a sandbox is in use, and not for every stream', async () => {
    const { reported, open } = await tunnelled();
    for (let times = 0; times < 20; times += 1) await open({ ...stat, sandbox }).result;
    expect(reported).toContainEqual(
      expect.objectContaining({ type: 'ActivityObserved', data: { activity: 'files' } }),
    );
    expect(reported.length).toBeLessThan(10);
  });
});
