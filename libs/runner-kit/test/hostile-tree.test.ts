import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArtifactDirectory, ManifestRefused } from '@vmux/artifacts';
import { ProtocolViolation, type SupervisorClient } from '../src/index';
import { BodyWriter, FRAME } from '../src/wire';
import { FileIndex } from '../src/work/checkpoint-index';
import { ScanRoom } from '../src/work/scan-room';
import { takeCheckpoint } from '../src/work/take-checkpoint';
import { FakeSupervisor } from './fake-supervisor';

const KNOWS_CHECKPOINTS = 8;

interface Said {
  readonly type?: string;
  readonly path: string;
  readonly size?: number | 'absurd';
  readonly target?: string;
  readonly attribute?: string;
  readonly mode?: number;
}

const raw = (...parts: (Buffer | number)[]): Buffer =>
  Buffer.concat(parts.map((part) => (typeof part === 'number' ? Buffer.of(part) : part)));
const u64 = (value: number | bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const counted = (text: string | Buffer): Buffer =>
  raw(u32(Buffer.from(text).length), Buffer.from(text));

function entry({ type = 'f', path, size = 0, target = '', attribute, mode = 0o644 }: Said): Buffer {
  const length = size === 'absurd' ? u64(2n ** 62n) : u64(size);
  const attributes = attribute
    ? raw(Buffer.of(1, 0), counted(attribute), counted('v'))
    : Buffer.alloc(2);
  const numbers = raw(
    u32(mode),
    u32(0),
    u32(0),
    u32(1),
    length,
    u64(1),
    u64(1),
    u64(1),
    u64(path.length),
  );
  return raw(type.charCodeAt(0), 0, numbers, counted(path), counted(target), attributes);
}

const scanOf = (entries: readonly Said[], count = entries.length): Buffer =>
  raw(u64(10n ** 18n), u64(0), 0, ...entries.map(entry), 0x7a, u64(count));

const status = (kind: 'F' | 'E', size: number, changedAt = 1): Buffer =>
  raw(kind.charCodeAt(0), u64(size), u64(1), u64(changedAt), u64(1));
const block = (offset: number, bytes: Buffer): Buffer => raw(0x44, u64(offset), counted(bytes));

/** Plays a sandbox that answers every scan and every reading with the same lies. */
async function lyingSandbox(scan: Buffer, files: Buffer): Promise<SupervisorClient> {
  const { client, peer } = await FakeSupervisor.greeted(KNOWS_CHECKPOINTS);
  const answer = (id: number, bytes: Buffer) => {
    for (let at = 0; at < bytes.length; at += 65_536)
      peer.say(new BodyWriter().bytes(bytes.subarray(at, at + 65_536)).frame(FRAME.data, id));
    peer.say(new BodyWriter().u64(bytes.length).frame(FRAME.ok, id));
  };
  // Frames are heard in turn; what is not asked for is never answered.
  void (async () => {
    for (;;) {
      const frame = await peer.hearAny();
      if (frame.type === FRAME.scan) answer(frame.id, scan);
      if (frame.type === FRAME.readMany) answer(frame.id, files);
      if (frame.type === FRAME.freeze) peer.say(new BodyWriter().u64(0).frame(FRAME.ok, frame.id));
      if (frame.type === FRAME.close) peer.say(new BodyWriter().frame(FRAME.closed, frame.id));
    }
  })();
  return client;
}

describe('a sandbox that lies about its files', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'vmux-lies-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  async function take(
    scan: Buffer,
    files: Buffer = Buffer.alloc(0),
    { index = new FileIndex(), room }: { index?: FileIndex; room?: ScanRoom } = {},
  ) {
    const { chunks } = await ArtifactDirectory.at(root);
    const client = await lyingSandbox(scan, files);
    try {
      return await takeCheckpoint({
        client,
        store: chunks,
        index,
        room,
        base: { image: null, digest: null, distribution: null, architecture: 'x86_64' },
        removed: async () => [],
        maxBytes: 200_000,
        hold: false,
        signal: new AbortController().signal,
      });
    } finally {
      client.close();
    }
  }

  it('is believed when it tells the truth', async () => {
    const content = Buffer.from('hello');
    const scan = scanOf([
      { type: 'd', path: 'srv' },
      { path: 'srv/file', size: 5 },
    ]);
    const files = raw(status('F', 5), block(0, content), status('E', 5));
    expect(await take(scan, files)).toMatchObject({ bytes: 5 });
  });

  it('is told what is new to it, and nothing of what others have', async () => {
    const content = Buffer.alloc(100_000, 'secret');
    const scan = scanOf([{ path: 'file', size: content.length }]);
    const size = content.length;
    const files = raw(
      status('F', size),
      block(0, content.subarray(0, 65_536)),
      block(65_536, content.subarray(65_536)),
      status('E', size),
    );
    const index = new FileIndex();
    const first = await take(scan, files, { index });
    expect(first.newBytes).toBeGreaterThan(size);
    // The store has every piece of it now.
    const another = await take(scan, files);
    expect(another.newBytes).toBe(first.newBytes);
    const again = await take(scan, files, { index });
    expect(again.newBytes).toBe(0);
  });

  it('waits for its turn with a tree that is large, and is refused one that is too large', async () => {
    const content = Buffer.from('hello');
    const scan = scanOf([
      { type: 'd', path: 'srv' },
      { path: 'srv/file', size: 5 },
    ]);
    const files = raw(status('F', 5), block(0, content), status('E', 5));
    const large = new ScanRoom({ smallBytes: 300 });
    expect(await take(scan, files, { room: large })).toMatchObject({ bytes: 5 });
    const full = new ScanRoom({ smallBytes: 300, largeBytes: 350 });
    await expect(take(scan, files, { room: full })).rejects.toBeInstanceOf(ManifestRefused);
  });

  it.each<[string, readonly Said[], typeof ProtocolViolation | typeof ManifestRefused]>([
    ['a path that leads out', [{ type: 'd', path: '../../etc' }], ManifestRefused],
    ['an absolute path', [{ type: 'd', path: '/etc' }], ManifestRefused],
    [
      'the same path twice',
      [
        { type: 'd', path: 'a' },
        { type: 'd', path: 'a' },
      ],
      ProtocolViolation,
    ],
    [
      'paths out of order',
      [
        { type: 'd', path: 'b' },
        { type: 'd', path: 'a' },
      ],
      ProtocolViolation,
    ],
    ['what was left out', [{ type: 'd', path: 'proc/1' }], ProtocolViolation],
    ['a size beyond all sizes', [{ path: 'a', size: 'absurd' }], ProtocolViolation],
    ['an unknown type', [{ type: 'b', path: 'a' }], ProtocolViolation],
    ['a link to nothing', [{ type: 'l', path: 'a' }], ManifestRefused],
    ['a mode that is none', [{ type: 'd', path: 'a', mode: 0o170_755 }], ManifestRefused],
    [
      'an attribute of the kernel’s own',
      [{ type: 'd', path: 'a', attribute: 'trusted.overlay.opaque' }],
      ManifestRefused,
    ],
  ])('is refused for %s', async (_what, said, kind) => {
    await expect(take(scanOf(said))).rejects.toBeInstanceOf(kind);
    expect(await readdir(join(root, 'incoming'))).toEqual([]);
  });

  it('is refused for entries that it does not tell', async () => {
    const scan = scanOf([{ type: 'd', path: 'a' }], 2);
    await expect(take(scan)).rejects.toBeInstanceOf(ProtocolViolation);
    await expect(take(scan.subarray(0, 30))).rejects.toBeInstanceOf(ProtocolViolation);
  });

  const one = scanOf([{ path: 'file', size: 100_000 }]);
  const piece = Buffer.alloc(65_536, 1);
  it.each<[string, Buffer, typeof ProtocolViolation | typeof ManifestRefused]>([
    ['no file', Buffer.alloc(0), ProtocolViolation],
    ['bytes of no file', block(0, piece), ProtocolViolation],
    ['a file within a file', raw(status('F', 9), status('F', 9)), ProtocolViolation],
    ['bytes beyond the end', raw(status('F', 10), block(0, piece)), ProtocolViolation],
    ['bytes that are not aligned', raw(status('F', 100_000), block(1, piece)), ProtocolViolation],
    [
      'bytes that come again',
      raw(status('F', 100_000), block(0, piece), block(0, piece)),
      ProtocolViolation,
    ],
    [
      'another file than was asked for',
      raw(status('F', 100_000), status('E', 100_000), status('F', 1), status('E', 1)),
      ProtocolViolation,
    ],
    [
      'a file that changes though everything stands still',
      raw(status('F', 100_000), block(0, piece), status('E', 100_000, 2)),
      ManifestRefused,
    ],
    [
      'more bytes than a session has room for',
      raw(
        status('F', 10_000_000),
        ...Array.from({ length: 5 }, (_, at) => block(at * 65_536, piece)),
        status('E', 10_000_000),
      ),
      ManifestRefused,
    ],
  ])('is refused for sending %s', async (_what, files, kind) => {
    await expect(take(one, files)).rejects.toBeInstanceOf(kind);
  });

  it('that is older than checkpoints says so', async () => {
    const { client } = await FakeSupervisor.greeted();
    await expect((async () => client.trees.scan([]))()).rejects.toThrow(/older than checkpoints/);
    await client.trees.thaw();
  });
});
