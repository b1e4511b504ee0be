import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileIndex } from '../src/work/checkpoint-index';
import { FileIndexes } from '../src/work/file-indexes';
import { IndexFiles } from '../src/work/index-files';

const hex = () => randomBytes(32).toString('hex');
const entryOf = (path: string, changedAtNs = 5n) => ({
  ...{ type: 'file' as const, mapped: false, mode: 0o644, uid: 0, gid: 0, links: 1, size: 10 },
  ...{ modifiedAtNs: -7n, changedAtNs, identity: randomBytes(16).toString('latin1') },
  ...{ path, target: '', attributes: [] },
});
const content = {
  digest: hex(),
  extents: [{ offset: 0, length: 6 }],
  segments: [{ chunk: hex(), offset: 3, length: 6 }],
};
const LATER = 1_000_000_000n;

describe('what is known of files across restarts', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'vmux-index-'));
  });
  afterEach(() => rm(directory, { recursive: true }));

  const saved = async (key = 'web-0001/1/i') => {
    const indexes = new FileIndexes(new IndexFiles(directory));
    const index = await indexes.of(key);
    const entries = ['plain', 'odd \xff\n name', 'a/b'].map((path) => entryOf(path));
    for (const entry of entries) index.remember(entry, content, LATER);
    index.rememberPieces([content], new Set(['piece']));
    await indexes.keep(key);
    return entries;
  };
  const loaded = (key = 'web-0001/1/i') => new FileIndexes(new IndexFiles(directory)).of(key);

  it('is found again as it was, and only for the file that it was of', async () => {
    const entries = await saved();
    const index = await loaded();
    for (const entry of entries) {
      expect(index.find(entry)).toEqual(content);
      // A forged time of modification leaves the time of change behind.
      expect(index.find({ ...entry, changedAtNs: 6n })).toBeUndefined();
      expect(index.find({ ...entry, identity: entryOf('x').identity })).toBeUndefined();
    }
    expect(index.pieces()).toEqual(new Set(['piece', content.segments[0]?.chunk]));
    expect((await loaded('web-0002/1/i')).isEmpty).toBe(true);
  });

  it('counts for nothing when anything of it was changed, cut or is of another version', async () => {
    await saved();
    const [name = ''] = await readdir(directory);
    const file = join(directory, name);
    const text = await readFile(file, 'utf8');
    const other = content.digest.replace(/^./, (first) => (first === '0' ? '1' : '0'));
    for (const damaged of [
      text.replace(content.digest, other),
      text.slice(0, -1),
      text.slice(0, text.length / 2),
      text.replace('file-index 1', 'file-index 2'),
      '',
    ]) {
      await writeFile(file, damaged);
      expect((await loaded()).isEmpty).toBe(true);
    }
  });

  it('goes with its sandbox, and the oldest make room', async () => {
    await saved();
    const indexes = new FileIndexes(new IndexFiles(directory));
    await indexes.forget('web-0001/1/i');
    expect(await readdir(directory)).toEqual([]);
    const disk = new IndexFiles(directory);
    for (let number = 0; number < 70; number += 1) await disk.save(`s/${number}`, new FileIndex());
    expect((await readdir(directory)).length).toBeLessThanOrEqual(64);
  });
});
