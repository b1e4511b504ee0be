import * as fc from 'fast-check';
import { ProtocolViolation, SandboxError, SupervisorClient, WrongSupervisor } from '../src/index';
import { BodyWriter, FRAME } from '../src/wire';
import { execFrame, FakeSupervisor, helloFrame, outputFrame, tag } from './fake-supervisor';

const header = (length: number, type: number, id: number): Buffer => {
  const raw = Buffer.alloc(9);
  raw.writeUInt32LE(length, 0);
  raw.writeUInt8(type, 4);
  raw.writeUInt32LE(id, 5);
  return raw;
};

type Answers = (id: number) => Buffer[];
const ok = (id: number, value = 0) => new BodyWriter().u64(value).frame(FRAME.ok, id);

describe('a hostile supervisor', () => {
  it.each<[string, () => Buffer]>([
    ['something that is no greeting', () => Buffer.from('HTTP/1.1 200 OK\r\n\r\n')],
    ['a greeting of gigabytes', () => header(0x7fff_ffff, FRAME.hello, 0)],
    ['a frame before the greeting', () => execFrame(1, 'e1')],
    [
      'a greeting with bytes after its end',
      () => {
        const frame = Buffer.concat([helloFrame(), Buffer.of(0)]);
        frame.writeUInt32LE(frame.length - 4, 0);
        return frame;
      },
    ],
    ['an instance that is no name', () => helloFrame({ instance: '../x' })],
  ])('is refused when it opens with %s', async (_title, opening) => {
    const peer = new FakeSupervisor();
    peer.say(opening());
    const connected = SupervisorClient.connect(peer.pipe, tag);
    await expect(connected).rejects.toBeInstanceOf(ProtocolViolation);
    expect(peer.pipe.destroyed).toBe(true);
  });

  it('is refused when it is of another epoch or instance, or speaks another version', async () => {
    for (const changes of [{ epoch: 4 }, { instance: 'abd' }]) {
      const peer = new FakeSupervisor();
      peer.say(helloFrame(changes));
      await expect(SupervisorClient.connect(peer.pipe, tag)).rejects.toBeInstanceOf(
        WrongSupervisor,
      );
    }
    const peer = new FakeSupervisor();
    peer.say(helloFrame({ version: 2 }));
    await expect(SupervisorClient.connect(peer.pipe, tag)).rejects.toMatchObject({
      reason: 'version',
    });
  });

  it('is given up when it never greets', async () => {
    const peer = new FakeSupervisor();
    const connected = SupervisorClient.connect(peer.pipe, { ...tag, helloTimeoutMs: 20 });
    await expect(connected).rejects.toMatchObject({ code: 'pipe_broken', next: 'retry' });
  });

  it.each<[string, Answers]>([
    ['a frame longer than any may be', (id) => [header(1_048_577, FRAME.output, id)]],
    ['a frame too short to be one', () => [Buffer.from([4, 0, 0, 0, 0x51, 0, 0, 0, 0])]],
    ['an answer to no request', (id) => [execFrame(id + 1, 'e1')]],
    ['an answer for the connection itself', () => [execFrame(0, 'e1')]],
    ['an unknown type of frame', (id) => [new BodyWriter().frame(0xee, id)]],
    ['a frame of another request', (id) => [new BodyWriter().bytes('').frame(FRAME.data, id)]],
    ['an answer about another exec', (id) => [execFrame(id, 'e2')]],
    ['an unknown state', (id) => [execFrame(id, 'e1', { state: 9 })]],
    ['an exit code of 256', (id) => [execFrame(id, 'e1', { state: 3, code: 256 })]],
    ['a signal of 0', (id) => [execFrame(id, 'e1', { state: 4, code: 0 })]],
    [
      'an unknown error',
      (id) => [new BodyWriter().u16(99).u16(0).u32(0).u64(0).bytes('').frame(FRAME.error, id)],
    ],
    ['output that begins elsewhere', (id) => [outputFrame(id, 5, Buffer.from('x'))]],
    [
      'output with a hole',
      (id) => [outputFrame(id, 0, Buffer.from('ab')), outputFrame(id, 3, Buffer.from('x'))],
    ],
    [
      'output that repeats itself',
      (id) => [outputFrame(id, 0, Buffer.from('ab')), outputFrame(id, 1, Buffer.from('b'))],
    ],
    ['output of no bytes', (id) => [outputFrame(id, 0, Buffer.alloc(0))]],
    ['output of an unknown kind', (id) => [outputFrame(id, 0, Buffer.from('x'), 7)]],
    ['one piece of more than 64 KiB', (id) => [outputFrame(id, 0, Buffer.alloc(65_537))]],
    [
      'more output than was granted',
      (id) =>
        Array.from({ length: 5 }, (_, at) => outputFrame(id, at * 65_536, Buffer.alloc(65_536))),
    ],
    [
      'a length beyond its frame',
      (id) => {
        const frame = outputFrame(id, 0, Buffer.from('xyz'));
        frame.writeUInt32LE(4000, 9 + 25);
        return [frame];
      },
    ],
    [
      'numbers that no file can have',
      (id) => {
        const frame = outputFrame(id, 0, Buffer.from('xyz'));
        frame.fill(0xfe, 10, 18);
        return [frame];
      },
    ],
  ])('loses its pipe when it answers a read with %s', async (_title, answers) => {
    const { client, peer } = await FakeSupervisor.greeted();
    const reader = client.read('e1');
    const reading = (async () => {
      // Taken slowly enough that nothing is granted again before all has arrived.
      await reader.next();
      await client.ended;
      for (let item = await reader.next(); !item.done; item = await reader.next());
    })();
    const { id } = await peer.hear(FRAME.read);
    peer.say(...answers(id));
    await expect(reading).rejects.toBeInstanceOf(ProtocolViolation);
    await expect(client.ended).resolves.toBeInstanceOf(ProtocolViolation);
    expect(peer.pipe.destroyed).toBe(true);
  });

  it('loses its pipe when a file is shorter than it says, an entry is endless or a listing half', async () => {
    const cases: [(client: SupervisorClient) => Promise<unknown>, number, Answers][] = [
      [
        async (client) => {
          for await (const _ of client.files.read('/f'));
        },
        FRAME.fileRead,
        (id) => [ok(id, 10)],
      ],
      [
        async (client) => {
          for await (const _ of client.files.list('/'));
        },
        FRAME.fileList,
        (id) => [new BodyWriter().bytes(Buffer.from('f123')).frame(FRAME.data, id), ok(id, 4)],
      ],
      [
        async (client) => {
          for await (const _ of client.files.list('/'));
        },
        FRAME.fileList,
        (id) => [new BodyWriter().bytes(Buffer.alloc(60, 0xff)).frame(FRAME.data, id)],
      ],
    ];
    for (const [ask, type, answers] of cases) {
      const { client, peer } = await FakeSupervisor.greeted();
      const asked = ask(client);
      const { id } = await peer.hear(type);
      peer.say(...answers(id));
      await expect(asked).rejects.toBeInstanceOf(ProtocolViolation);
      client.close();
    }
  });

  it('can say any bytes at all and cause nothing but typed errors', async () => {
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 300 });
    const frame = fc
      .tuple(fc.integer({ min: 0, max: 0x60 }), fc.integer({ min: 0, max: 4 }), bytes)
      .map(([type, id, body]) =>
        Buffer.concat([header(5 + body.length, type, id), Buffer.from(body)]),
      );
    const said = fc.array(fc.oneof({ weight: 5, arbitrary: frame }, bytes), { maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(said, async (pieces) => {
        const { client, peer } = await FakeSupervisor.greeted();
        const requests = [
          (async () => {
            for await (const _ of client.read('e1'));
          })(),
          client.state('e1'),
          client.figures(),
          (async () => {
            for await (const _ of client.files.list('/'));
          })(),
        ];
        const settled = Promise.allSettled(requests);
        for (const piece of pieces) peer.say(Buffer.from(piece));
        peer.end.end();
        for (const result of await settled)
          if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(SandboxError);
        await expect(client.ended).resolves.toBeInstanceOf(SandboxError);
      }),
      { numRuns: 300 },
    );
  });
});
