import { once } from 'node:events';
import { openInput, SupervisorClient, SupervisorRefused } from '../src/index';
import { BodyWriter, FRAME } from '../src/wire';
import { bodyOf, execFrame, FakeSupervisor, helloFrame, outputFrame, tag } from './fake-supervisor';

const ok = (id: number, value = 0) => new BodyWriter().u64(value).frame(FRAME.ok, id);
const data = (id: number, bytes: Buffer) => new BodyWriter().bytes(bytes).frame(FRAME.data, id);
const credit = (id: number, bytes: number, type: number = FRAME.credit) =>
  new BodyWriter().u32(bytes).frame(type, id);
const refusal = (id: number, code: number, detail: number) =>
  new BodyWriter().u16(code).u16(0).u32(0).u64(detail).bytes('no\u001b[31m').frame(FRAME.error, id);

async function readAll(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

describe('the supervisor client', () => {
  it('sends a command exactly and reads what became of it', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const pty = { cols: 80, rows: 24 };
    const argv = ['printf', '%s', 'ü'];
    const start = { execId: 'e1', argv, env: { A: 'b=c' }, cwd: '/tmp', user: 'nobody', pty };
    const answer = client.start(start);
    const asked = await peer.hear(FRAME.start);
    const body = bodyOf(asked);
    expect([body.text(64), body.u32(), body.u16(), body.u16()]).toEqual(['e1', 1, 80, 24]);
    expect([body.text(64), body.text(64)]).toEqual(['nobody', '/tmp']);
    expect(Array.from({ length: body.u16() }, () => body.text(64))).toEqual(argv);
    expect(Array.from({ length: body.u16() }, () => body.text(64))).toEqual(['A=b=c']);
    body.end();
    peer.say(execFrame(asked.id, 'e1', { state: 4, code: 9 }));
    expect((await answer).outcome).toEqual({ kind: 'signalled', signal: 9, coreDumped: false });
    client.close();
  });

  it('grants output only as fast as it is read, and gives a read up when its reader leaves', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const reader = client.read('e1');
    const first = reader.next();
    const asked = await peer.hear(FRAME.read);
    const body = bodyOf(asked);
    body.text(64);
    body.u16();
    expect(body.u64()).toBe(0);
    const granted = body.u32();
    const piece = 65_536;
    for (let at = 0; at < granted; at += piece)
      peer.say(outputFrame(asked.id, at, Buffer.alloc(piece, at / piece)));
    expect((await first).value).toMatchObject({ kind: 'stdout', mergedOffset: 0 });
    const pinged = client.ping();
    const ping = await peer.hear(FRAME.ping);
    peer.say(new BodyWriter().bytes('').frame(FRAME.pong, ping.id));
    await pinged;
    expect(peer.heardNothing()).toBe(true);
    await reader.next();
    const more = await peer.hear(FRAME.credit);
    expect(bodyOf(more).u32()).toBe(piece);
    await reader.return(undefined);
    expect((await peer.hear(FRAME.close)).id).toBe(asked.id);
    // What was on its way when the reader left is nobody's any more, and no fault.
    peer.say(outputFrame(asked.id, granted, Buffer.alloc(10)));
    peer.say(new BodyWriter().frame(FRAME.closed, asked.id));
    const state = client.state('e1');
    const next = await peer.hear(FRAME.state);
    peer.say(execFrame(next.id, 'e1', { state: 2 }));
    expect((await state).outcome.kind).toBe('running');
    client.close();
  });

  it('asks only those for the usage with a read that know it', async () => {
    const asked = async (flags: number) => {
      const { client, peer } = await FakeSupervisor.greeted(flags);
      const reader = client.read('e1', { usage: true });
      const first = reader.next();
      const frame = await peer.hear(FRAME.read);
      const body = bodyOf(frame);
      body.text(64);
      body.u8();
      return { first, peer, id: frame.id, follow: body.u8() };
    };
    const old = await asked(1 | 16);
    expect(old.follow).toBe(1);
    old.peer.say(execFrame(old.id, 'e1'));
    expect((await old.first).value).toMatchObject({ kind: 'end', usage: undefined });
    const knowing = await asked(1 | 16 | 32);
    expect(knowing.follow).toBe(2);
    const cpuUs = new BodyWriter().u16(1).u16(1).u64(70);
    knowing.peer.say(cpuUs.frame(FRAME.figuresAnswer, knowing.id));
    knowing.peer.say(execFrame(knowing.id, 'e1'));
    expect((await knowing.first).value).toMatchObject({ kind: 'end', usage: { cpuUs: 70 } });
  });

  it('joins small neighbouring pieces of output without losing a byte or their order', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const reader = client.read('e1');
    const first = reader.next();
    const { id } = await peer.hear(FRAME.read);
    peer.say(...Array.from({ length: 200 }, (_, at) => outputFrame(id, at, Buffer.of(at))));
    peer.say(execFrame(id, 'e1', { stdout: 200 }));
    const pieces: Buffer[] = [];
    for (let item = await first; !item.done; item = await reader.next())
      if ('data' in item.value) {
        expect(item.value.mergedOffset).toBe(Buffer.concat(pieces).length);
        pieces.push(item.value.data);
      } else expect(item.value).toMatchObject({ kind: 'end' });
    expect(Buffer.concat(pieces)).toEqual(Buffer.from(Array.from({ length: 200 }, (_, at) => at)));
    client.close();
  });

  it('tells a refusal of one request from the end of the pipe', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const state = client.state('e1');
    const asked = await peer.hear(FRAME.state);
    peer.say(refusal(asked.id, 5, 0));
    const fault = await state.catch((reason: unknown) => reason);
    expect(fault).toBeInstanceOf(SupervisorRefused);
    expect(fault).toMatchObject({ reason: 'not_found', next: 'refuse' });
    expect((fault as Error).message).not.toContain('\u001b');
    const open = client.figures();
    await peer.hear(FRAME.figures);
    peer.end.end();
    await expect(open).rejects.toMatchObject({ code: 'pipe_broken', next: 'retry' });
    await expect(client.ended).resolves.toMatchObject({ code: 'pipe_broken' });
    await expect(client.ping()).rejects.toMatchObject({ code: 'pipe_broken' });
  });

  it('sends input in order, waiting where the sandbox is full, and repeats nothing', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const input = openInput(client, 'e1', { writer: 7 });
    const written = input.write(Buffer.from('hello'));
    const first = await peer.hear(FRAME.stdin);
    const ack = (id: number, next: number, flags: number) =>
      new BodyWriter().u64(next).u8(flags).frame(FRAME.stdinAck, id);
    peer.say(ack(first.id, 2, 1));
    peer.say(new BodyWriter().frame(FRAME.stdinReady, first.id));
    const second = await peer.hear(FRAME.stdin);
    const body = bodyOf(second);
    expect([body.text(64), body.u64(), body.u64(), body.u8()]).toEqual(['e1', 7, 2, 0]);
    expect(body.text(64)).toBe('llo');
    peer.say(ack(second.id, 5, 0));
    await written;
    const ended = input.end();
    const last = bodyOf(await peer.hear(FRAME.stdin));
    expect([last.text(64), last.u64(), last.u64(), last.u8()]).toEqual(['e1', 7, 5, 1]);
    peer.say(ack(last.frame.id, 6, 2));
    await ended;
    client.close();
  });

  it('sends a file no faster than it is granted', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const content = Buffer.alloc(100_000, 'x');
    const sent = client.files.write('/f', [content]);
    const { id } = await peer.hear(FRAME.fileWrite);
    peer.say(credit(id, 40_000, FRAME.accepted));
    const first = bodyOf(await peer.hear(FRAME.data)).bytes(65_536);
    expect(first).toHaveLength(40_000);
    peer.say(credit(id, 100_000));
    const second = bodyOf(await peer.hear(FRAME.data)).bytes(65_536);
    expect(second).toHaveLength(60_000);
    await peer.hear(FRAME.end);
    peer.say(ok(id, 100_000));
    await expect(sent).resolves.toBe(100_000);
    client.close();
  });

  it('carries a tunnel both ways, half-closing each', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const dialled = client.dial(8080);
    const asked = await peer.hear(FRAME.dial);
    expect(bodyOf(asked).u16()).toBe(8080);
    peer.say(credit(asked.id, 1000, FRAME.accepted));
    const tunnel = await dialled;
    tunnel.end('question');
    expect(bodyOf(await peer.hear(FRAME.data)).text(64)).toBe('question');
    await peer.hear(FRAME.end);
    peer.say(data(asked.id, Buffer.from('answer')), new BodyWriter().frame(FRAME.end, asked.id));
    peer.say(ok(asked.id));
    expect((await readAll(tunnel)).toString()).toBe('answer');
    client.close();
  });

  it('ends a tunnel with an error when the port is reset', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const dialled = client.dial(1);
    const asked = await peer.hear(FRAME.dial);
    peer.say(credit(asked.id, 10, FRAME.accepted));
    const tunnel = await dialled;
    peer.say(refusal(asked.id, 11, 0));
    await expect(once(tunnel, 'end')).rejects.toMatchObject({ reason: 'system' });
    const refused = client.dial(2);
    const again = await peer.hear(FRAME.dial);
    peer.say(refusal(again.id, 11, 0));
    await expect(refused).rejects.toMatchObject({ reason: 'system' });
    client.close();
  });

  it('gives a request up when its caller aborts', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const abort = new AbortController();
    const figures = client.figures({ signal: abort.signal });
    const asked = await peer.hear(FRAME.figures);
    abort.abort(new Error('enough'));
    await expect(figures).rejects.toThrow('enough');
    expect((await peer.hear(FRAME.close)).id).toBe(asked.id);
    client.close();
  });

  it('lets the supervisor hear now and then that it is there, once answered again', async () => {
    const peer = new FakeSupervisor();
    peer.say(helloFrame());
    const client = await SupervisorClient.connect(peer.pipe, { ...tag, speakEveryMs: 5 });
    await peer.hear(FRAME.hello);
    for (let times = 0; times < 3; times++) {
      const { id } = await peer.hear(FRAME.ping);
      await new Promise((resolve) => setTimeout(resolve, 30));
      expect(peer.heardNothing()).toBe(true);
      peer.say(new BodyWriter().bytes('').frame(FRAME.pong, id));
    }
    client.close();
  });

  it('tells the latest of what changed while nobody read', async () => {
    const { client, peer } = await FakeSupervisor.greeted();
    const watch = client.watch();
    const first = watch.next();
    const { id } = await peer.hear(FRAME.watch);
    const running = execFrame(id, 'e2', { state: 2 });
    const exited = execFrame(id, 'e2', { state: 3, code: 4 });
    peer.say(execFrame(id, 'e1', { state: 2 }), ok(id), running, exited);
    expect((await first).value).toMatchObject({ kind: 'exec', exec: { execId: 'e1' } });
    expect((await watch.next()).value).toEqual({ kind: 'caughtUp' });
    expect((await watch.next()).value).toMatchObject({
      exec: { execId: 'e2', outcome: { kind: 'exited', code: 4 } },
    });
    await watch.return(undefined);
    client.close();
  });
});
