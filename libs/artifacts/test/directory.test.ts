import { createHash, randomBytes } from 'node:crypto';
import { appendFile, mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import {
  ArtifactDirectory,
  ArtifactNotFound,
  ArtifactTooLarge,
  DigestMismatch,
} from '@vmux/artifacts';

const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function* inChunks(bytes: Uint8Array, size = 1000) {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

describe('the artifact directory', () => {
  let root: string;
  let store: ArtifactDirectory;
  const content = randomBytes(100_000);
  const digest = digestOf(content);
  const put = (owner = 'ada', maxBytes = 1_000_000) =>
    store.put(digest, inChunks(content), { owner, maxBytes });

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'vmux-artifacts-'));
    store = await ArtifactDirectory.at(root);
  });
  afterEach(() => rm(root, { recursive: true }));

  it('gives back the bytes that were put', async () => {
    expect(await put()).toEqual({ digest, bytes: content.length, deduplicated: false });
    const { bytes, stream } = await store.open(digest);
    expect(bytes).toBe(content.length);
    expect((await buffer(stream)).equals(content)).toBe(true);
  });

  it('stores the same content once, and an empty one too', async () => {
    await put();
    expect(await put()).toMatchObject({ deduplicated: true });
    const empty = digestOf(Buffer.alloc(0));
    await store.put(empty, inChunks(Buffer.alloc(0)), { owner: 'ada', maxBytes: 0 });
    expect((await store.open(empty)).bytes).toBe(0);
  });

  it('tells nobody what others have', async () => {
    await put('ada');
    expect(await put('bob')).toMatchObject({ deduplicated: false });
    expect(await put('bob')).toMatchObject({ deduplicated: true });
  });

  it('refuses content with another digest and keeps nothing of it', async () => {
    await expect(
      store.put(digestOf(Buffer.from('other')), inChunks(content), {
        owner: 'ada',
        maxBytes: 1_000_000,
      }),
    ).rejects.toThrow(DigestMismatch);
    expect(await readdir(join(root, 'incoming'))).toEqual([]);
    expect(await readdir(join(root, 'content'))).toEqual([]);
  });

  it('refuses content past the limit and keeps nothing of it', async () => {
    await expect(put('ada', content.length - 1)).rejects.toThrow(ArtifactTooLarge);
    expect(await readdir(join(root, 'incoming'))).toEqual([]);
  });

  it('knows who has shown to possess a content: another owner has to put it too', async () => {
    await put('ada');
    expect(await store.ownedBy('ada', digest)).toBe(true);
    expect(await store.ownedBy('eve', digest)).toBe(false);
    await expect(
      store.put(digest, inChunks(Buffer.from('a guess')), { owner: 'eve', maxBytes: 1_000_000 }),
    ).rejects.toThrow(DigestMismatch);
    expect(await store.ownedBy('eve', digest)).toBe(false);
  });

  it('fails a read whose content was changed on disk', async () => {
    await put();
    await appendFile(join(root, 'content', digest.slice(0, 2), digest.slice(2)), 'x');
    const { stream } = await store.open(digest);
    await expect(buffer(stream)).rejects.toThrow(DigestMismatch);
  });

  it.each(['../../etc/passwd', '', digestOf(Buffer.from('never put'))])(
    'does not find %j',
    async (unknown) => {
      await expect(store.open(unknown)).rejects.toThrow(ArtifactNotFound);
    },
  );

  it('drops what a killed process left half received, and leaves what another one is receiving', async () => {
    const [abandoned, underWay] = ['abandoned', 'under-way'].map((name) =>
      join(root, 'incoming', name),
    );
    for (const file of [abandoned, underWay]) await appendFile(file as string, 'x');
    const twoDaysAgo = Date.now() / 1000 - 2 * 86_400;
    await utimes(abandoned as string, twoDaysAgo, twoDaysAgo);
    await ArtifactDirectory.at(root);
    expect(await readdir(join(root, 'incoming'))).toEqual(['under-way']);
  });
});
