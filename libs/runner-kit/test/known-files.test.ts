import { ArtifactDirectory } from '@vmux/artifacts';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import type { ScannedEntry } from '../src/supervisor-tree-answers';
import { FileIndex } from '../src/work/checkpoint-index';
import { takeCheckpoint } from '../src/work/take-checkpoint';
import { block, lyingSandbox, raw, SCANNED_AT_NS, scanOf, status } from './lying-sandbox';

afterAll(releaseAll);

const MS = 1_000_000n;
const digest = 'a'.repeat(64);
const content = {
  digest,
  extents: [{ offset: 0, length: 5 }],
  segments: [{ chunk: digest, offset: 0, length: 5 }],
};
const file: ScannedEntry = {
  ...{ type: 'file', mapped: false, mode: 0o644, uid: 0, gid: 0, links: 1, target: '' },
  ...{ size: 5, modifiedAtNs: 10n, changedAtNs: 20n, identity: 'device01inode001' },
  ...{ path: 'file', attributes: [] },
};

describe('a file that is known', () => {
  const known = () => {
    const index = new FileIndex();
    index.remember(file, content, SCANNED_AT_NS);
    return index;
  };

  it('is not read again', () => {
    expect(known().find({ ...file, mode: 0o600 })).toBe(content);
  });

  it.each<[string, Partial<ScannedEntry>]>([
    ['has another size', { size: 6 }],
    ['has another mtime', { modifiedAtNs: 11n }],
    ['has its mtime set back, which leaves another ctime', { changedAtNs: 21n }],
    ['is another file of the same name', { identity: 'device01inode002' }],
    ['has another name', { path: 'other' }],
  ])('is read again when it %s', (_what, now) => {
    expect(known().find({ ...file, ...now })).toBeUndefined();
  });

  it('is read again when it is written through a mapping, or was within a tick of the look at it', () => {
    for (const now of [{ mapped: true }, { changedAtNs: SCANNED_AT_NS - 20n * MS }]) {
      const index = known();
      index.remember({ ...file, ...now }, content, SCANNED_AT_NS);
      expect(index.find({ ...file, ...now })).toBeUndefined();
      expect(index.find(file)).toBeUndefined();
    }
  });
});

describe('a copy of files that is listed long after it was taken', () => {
  const changedAtNs = SCANNED_AT_NS - 5_000n * MS;
  const scan = scanOf([{ path: 'file', size: 5, changedAtNs }]);
  const filesOf = (text: string) =>
    raw(status('F', 5, changedAtNs), block(0, Buffer.from(text)), status('E', 5, changedAtNs));

  /** The digests of two copies between which the file changed, and no time or size of it. */
  async function twoCopies(takenAtNs: bigint): Promise<readonly string[]> {
    const { chunks } = await ArtifactDirectory.at(temporaryDirectory('copies'));
    const index = new FileIndex();
    const digests: string[] = [];
    for (const text of ['first', 'later']) {
      const client = await lyingSandbox(scan, filesOf(text));
      const { manifestDigest } = await takeCheckpoint({
        ...{ client, store: chunks, index, takenAtNs, hold: false, maxBytes: 1_000_000 },
        base: { image: null, digest: null, distribution: null, architecture: 'x86_64' },
        removed: async () => [],
        signal: new AbortController().signal,
      });
      client.close();
      digests.push(manifestDigest);
    }
    return digests;
  }

  it('leaves unknown what was written just before it was taken: the same tick may have seen more', async () => {
    const [first, later] = await twoCopies(changedAtNs + MS);
    expect(later).not.toBe(first);
  });

  it('knows what was written before', async () => {
    const [first, later] = await twoCopies(changedAtNs + 100n * MS);
    expect(later).toBe(first);
  });
});
