import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArtifactDirectory, ManifestRefused } from '@vmux/artifacts';
import { ProtocolViolation } from '../src/index';
import { FileIndex } from '../src/work/checkpoint-index';
import { ScanRoom } from '../src/work/scan-room';
import { takeCheckpoint } from '../src/work/take-checkpoint';
import { FakeSupervisor } from './fake-supervisor';
import { block, lyingSandbox, raw, type Said, scanOf, status } from './lying-sandbox';

describe('a sandbox that lies about its files', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'vmux-lies-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  async function take(
    scan: Buffer,
    files: Buffer | readonly Buffer[] = [],
    { index = new FileIndex(), room }: { index?: FileIndex; room?: ScanRoom } = {},
  ) {
    const { chunks } = await ArtifactDirectory.at(root);
    const client = await lyingSandbox(scan, ...(Buffer.isBuffer(files) ? [files] : files));
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

  it('reads again, when everything stands still, what grew while it was read ahead', async () => {
    const content = Buffer.from('hello');
    const scan = scanOf([{ path: 'file', size: 5 }]);
    const growing = raw(status('F', 0), block(0, content), status('E', 5));
    const atRest = raw(status('F', 5), block(0, content), status('E', 5));
    expect(await take(scan, [growing, atRest])).toMatchObject({ bytes: 5 });
    // At rest nothing grows.
    await expect(take(scan, growing)).rejects.toBeInstanceOf(ProtocolViolation);
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
