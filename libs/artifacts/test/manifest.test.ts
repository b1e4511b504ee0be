import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ArtifactDirectory,
  type ChunkStore,
  digestOf,
  inTreeOrder,
  type ManifestEntry,
  ManifestRefused,
  ManifestWriter,
  piecesOf,
  readEntries,
  readRoot,
} from '@vmux/artifacts';
import fc from 'fast-check';
import { encodeIdentity, encodeRecord, RecordReader } from '../src/manifest';

const directory: ManifestEntry = {
  type: 'directory',
  mode: 0o755,
  uid: 0,
  gid: 0,
  size: 0,
  modifiedAtNs: 1_700_000_000_123_456_789n,
  path: 'srv',
  target: '',
  attributes: [],
  content: undefined,
};
const chunk = digestOf(Buffer.from('piece'));
const file: ManifestEntry = {
  ...directory,
  type: 'file',
  path: 'srv/file',
  size: 200_000,
  attributes: [{ name: 'user.note', value: Buffer.from([0, 1, 2]) }],
  content: {
    digest: digestOf(Buffer.from('content')),
    extents: [
      { offset: 0, length: 10 },
      { offset: 65_536, length: 20 },
    ],
    segments: [{ chunk, offset: 5, length: 30 }],
  },
};

describe('a manifest', () => {
  let root: string;
  let chunks: ChunkStore;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'vmux-manifest-'));
    chunks = (await ArtifactDirectory.at(root)).chunks;
  });
  afterEach(() => rm(root, { recursive: true }));

  const write = async (entries: readonly ManifestEntry[]) => {
    const writer = new ManifestWriter(chunks);
    for (const entry of entries) writer.add(entry);
    return writer.finish({ image: null });
  };
  const read = async (artifact: string) => {
    const entries: ManifestEntry[] = [];
    for await (const entry of readEntries(chunks, await readRoot(chunks, artifact)))
      entries.push(entry);
    return entries;
  };
  /** As if somebody had put it there who does not check. */
  const forge = async (entries: readonly ManifestEntry[], claims: object = {}) => {
    const records = entries.map((entry) =>
      encodeRecord(encodeIdentity(entry), entry.content?.segments ?? []),
    );
    const { digest } = await chunks.put(Buffer.concat(records));
    const { root: honest } = await write([]);
    const forged = { ...honest, entries: entries.length, manifest: [digest], ...claims };
    return (await chunks.put(Buffer.from(JSON.stringify(forged)))).digest;
  };

  const tree: ManifestEntry[] = [
    { ...directory, type: 'whiteout', path: 'etc/issue', mode: 0, modifiedAtNs: 0n },
    { ...directory, path: '' },
    directory,
    file,
    { ...directory, type: 'hardlink', path: 'srv/file-2', target: 'srv/file', mode: 0 },
    { ...directory, type: 'link', path: 'srv/link', target: '/etc/passwd' },
    { ...directory, type: 'fifo', path: 'srv/odd \xff\n', modifiedAtNs: -5n },
    { ...directory, path: 'srv.d' },
  ];

  it('comes back entry by entry, and names every piece that it needs', async () => {
    const { artifact, root: head } = await write(tree);
    expect(await read(artifact)).toEqual(tree);
    const pieces: string[] = [];
    for await (const piece of piecesOf(chunks, artifact)) pieces.push(piece);
    expect(pieces).toEqual([artifact, ...head.manifest, chunk]);
    expect(head).toMatchObject({ entries: tree.length, bytes: 30 });
  });

  it('has the same digest wherever the same bytes are kept, and another for any other tree', async () => {
    const { root: before } = await write(tree);
    const elsewhere = tree.map((entry) =>
      entry.content
        ? {
            ...entry,
            content: {
              ...entry.content,
              segments: [
                { chunk: digestOf(Buffer.from('other')), offset: 0, length: 12 },
                { chunk, offset: 0, length: 18 },
              ],
            },
          }
        : entry,
    );
    expect((await write(elsewhere)).root.treeDigest).toBe(before.treeDigest);
    const changes: Partial<ManifestEntry>[] = [
      { mode: 0o4755 },
      { uid: 1 },
      { gid: 1 },
      { size: 200_001 },
      { modifiedAtNs: 1n },
      { attributes: [] },
    ];
    const digests = [before.treeDigest];
    for (const change of changes)
      digests.push((await write([directory, { ...file, ...change }])).root.treeDigest);
    expect(new Set(digests).size).toBe(digests.length);
  });

  it.each<[string, readonly ManifestEntry[]]>([
    ['leads out by ..', [{ ...directory, path: 'srv/../../etc' }]],
    ['is absolute', [{ ...directory, path: '/etc' }]],
    ['has an empty name in it', [{ ...directory, path: 'srv//x' }]],
    ['has a NUL in it', [{ ...directory, path: 'srv\0x' }]],
    ['comes twice', [directory, directory]],
    ['comes before the directory that holds it', [file, directory]],
    ['is a file without a name', [{ ...file, path: '' }]],
    ['is a second name of nothing', [{ ...directory, type: 'hardlink', target: 'srv/none' }]],
    ['has bytes beyond its end', [{ ...file, size: 20 }]],
    [
      'has attributes of the kernel’s own',
      [{ ...file, attributes: [{ name: 'trusted.overlay.opaque', value: Buffer.from('y') }] }],
    ],
    ['has a mode that is none', [{ ...directory, mode: 0o100755 }]],
    [
      'has fewer bytes than it says',
      [{ ...file, content: { ...file.content, segments: [] } as ManifestEntry['content'] }],
    ],
  ])('is refused when an entry %s', async (_what, entries) => {
    await expect(read(await forge(entries))).rejects.toThrow(ManifestRefused);
  });

  it('is refused when it is not that of its root', async () => {
    await expect(read(await forge([directory]))).rejects.toThrow(/not those of its root/);
    await expect(read(await forge([directory, file], { entries: 1 }))).rejects.toThrow(/more/);
    await expect(read(await forge([directory], { entries: 5e9 }))).rejects.toThrow(/another form/);
    const text = (await chunks.put(Buffer.from('{"format":'))).digest;
    await expect(read(text)).rejects.toThrow(ManifestRefused);
  });

  it('is read or refused whatever bytes it is made of, and never anything else', () => {
    const good = encodeRecord(encodeIdentity(file), file.content?.segments ?? []);
    const damaged = fc
      .tuple(fc.nat(good.length - 1), fc.nat(255), fc.nat(good.length))
      .map(([at, byte, cut]) => {
        const bytes = Buffer.from(good);
        bytes[at] = byte;
        return bytes.subarray(0, Math.max(1, cut));
      });
    fc.assert(
      fc.property(fc.oneof(damaged, fc.constant(randomBytes(300))), (bytes) => {
        const reader = new RecordReader();
        try {
          for (const { entry } of reader.push(bytes)) expect(entry.path).not.toContain('..');
          reader.end();
        } catch (error) {
          expect(error).toBeInstanceOf(ManifestRefused);
        }
      }),
      { numRuns: 3000 },
    );
  });
});

describe('the order of a tree', () => {
  it('has what is in a directory right after it, and is one order of all paths', () => {
    const path = fc.array(fc.constantFrom('a', 'a-', 'a.b', 'ab', '\x01', '\xff', '0'), {
      minLength: 1,
      maxLength: 4,
    });
    const inParts = (a: readonly string[], b: readonly string[]): boolean => {
      const at = a.findIndex((part, n) => part !== b[n]);
      if (at < 0) return a.length < b.length;
      return b[at] !== undefined && (a[at] as string) < (b[at] as string);
    };
    fc.assert(
      fc.property(path, path, (a, b) => {
        expect(inTreeOrder(a.join('/'), b.join('/'))).toBe(inParts(a, b));
      }),
    );
    expect(inTreeOrder('', 'a')).toBe(true);
    expect(inTreeOrder('a', '')).toBe(false);
  });
});
