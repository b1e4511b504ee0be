import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import {
  ArtifactDirectory,
  ArtifactNotFound,
  ArtifactTooLarge,
  Chunker,
  ChunkUnreadable,
  type Digest,
  DigestMismatch,
  digestOf,
  MAX_CHUNK_BYTES,
  ManifestWriter,
} from '@vmux/artifacts';
import { describeUnless, releaseAll } from '@vmux/testing';
import { noMoto, type Opened, openDirectory, openMoto, openS3rver } from './servers';

function cut(bytes: Buffer, step = 65_536): Buffer[] {
  const chunks: Buffer[] = [];
  const chunker = new Chunker((chunk) => chunks.push(chunk));
  for (let at = 0; at < bytes.length; ) {
    at += chunker.push(bytes.subarray(at, Math.min(at + step, bytes.length)));
  }
  chunker.cut();
  return chunks;
}

describe('cutting by content', () => {
  const content = randomBytes(20_000_000);

  it('loses nothing, whatever pieces the bytes come in', () => {
    const chunks = cut(content);
    expect(Buffer.concat(chunks).equals(content)).toBe(true);
    expect(cut(content, 777).map(digestOf)).toEqual(chunks.map(digestOf));
    expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThanOrEqual(MAX_CHUNK_BYTES);
    expect(chunks.length).toBeGreaterThan(15);
    expect(chunks.length).toBeLessThan(80);
  });

  it('finds the same pieces again around an insertion', () => {
    const changed = Buffer.concat([
      content.subarray(0, 9_000_000),
      Buffer.from('inserted'),
      content.subarray(9_000_000),
    ]);
    const before = new Set(cut(content).map(digestOf));
    const fresh = cut(changed).filter((chunk) => !before.has(digestOf(chunk)));
    expect(fresh.reduce((sum, { length }) => sum + length, 0)).toBeLessThan(2 * MAX_CHUNK_BYTES);
  });
});

const kinds = [
  ['directory', '', openDirectory],
  ['S3 bucket (s3rver)', '', openS3rver],
  ['S3 bucket (moto)', noMoto, openMoto],
] as const;

for (const [kind, reason, open] of kinds)
  describeUnless(reason === '', reason)(`pieces in a ${kind}`, () => {
    let opened: Opened;
    const hour = 3600_000;
    const text = Buffer.from('the same again and again. '.repeat(20_000));

    beforeAll(async () => {
      opened = await open();
    }, 90_000);
    afterAll(releaseAll);

    it('come back as they were put, compressed or not, the empty one too', async () => {
      const { chunks } = opened.store;
      for (const clear of [text, randomBytes(300_000), Buffer.alloc(0), Buffer.from('x')]) {
        const { digest, storedBytes } = await chunks.put(clear);
        await chunks.sync();
        expect(digest).toBe(digestOf(clear));
        expect(storedBytes).toBeLessThan(clear.length + 100);
        expect((await chunks.get(digest)).equals(clear)).toBe(true);
      }
      const { storedBytes } = await chunks.put(Buffer.concat([text, Buffer.from('.')]));
      expect(storedBytes).toBeLessThan(text.length / 20);
    });

    it('are stored once, also when they are put at the same time', async () => {
      const { chunks } = opened.store;
      const clear = randomBytes(200_000);
      const puts = await Promise.all([chunks.put(clear), chunks.put(clear), chunks.put(clear)]);
      expect(new Set(puts.map(({ digest }) => digest)).size).toBe(1);
      expect(await chunks.put(clear)).toEqual({ digest: digestOf(clear), storedBytes: 0 });
    });

    it('that are not there are told apart from those that are', async () => {
      const { chunks } = opened.store;
      const { digest } = await chunks.put(randomBytes(10));
      const other = digestOf(randomBytes(10));
      expect(await chunks.missing([digest, other])).toEqual(new Set([other]));
      await expect(chunks.get(other)).rejects.toThrow(ArtifactNotFound);
      await expect(chunks.get('../../etc/passwd')).rejects.toThrow(ArtifactNotFound);
    });

    it('that were changed or cut where they lie are refused', async () => {
      const { chunks } = opened.store;
      const [raw, packed] = [await chunks.put(randomBytes(5000)), await chunks.put(text)];
      const bytes = await opened.readPiece(raw.digest);
      bytes[100] = (bytes[100] ?? 0) ^ 1;
      await opened.writePiece(raw.digest, bytes);
      await expect(chunks.get(raw.digest)).rejects.toThrow(DigestMismatch);
      const cutOff = (await opened.readPiece(packed.digest)).subarray(0, 40);
      await opened.writePiece(packed.digest, cutOff);
      await expect(chunks.get(packed.digest)).rejects.toThrow(ChunkUnreadable);
      const bomb = Buffer.from(bytes);
      bomb.writeUInt8(1, 0);
      bomb.writeUInt32LE(0xffff_ffff, 1);
      await opened.writePiece(raw.digest, bomb);
      await expect(chunks.get(raw.digest)).rejects.toThrow(/claims 4294967295 bytes/);
    });

    it('are dropped when nothing live needs them and they are old, and only then', async () => {
      const store = await opened.reopen(opened.graceMs);
      const { chunks } = store;
      const content = randomBytes(1000);
      const put = async (clear = randomBytes(1000)) => (await chunks.put(clear)).digest;
      const [needed, useless, wantedAgain] = [await put(), await put(), await put(content)];
      const writer = new ManifestWriter(chunks);
      writer.add({
        type: 'file',
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: 1000,
        modifiedAtNs: 1n,
        path: 'file',
        target: '',
        attributes: [],
        content: {
          digest: createHash('sha256')
            .update(await chunks.get(needed))
            .digest('hex'),
          extents: [{ offset: 0, length: 1000 }],
          segments: [{ chunk: needed, offset: 0, length: 1000 }],
        },
      });
      const { artifact, root } = await writer.finish(null);
      await opened.age([needed, useless, wantedAgain, artifact, ...root.manifest]);
      const young = await put();
      await chunks.put(content);
      const collected = await store.collect({ checkpoints: [artifact], bundles: [] });
      expect(collected.dropped).toBeGreaterThanOrEqual(1);
      for (const digest of [needed, young, wantedAgain, artifact, ...root.manifest])
        expect((await chunks.get(digest)).length).toBeGreaterThan(0);
      await expect(chunks.get(useless)).rejects.toThrow(ArtifactNotFound);
    });

    it('are not dropped while a live checkpoint cannot be read', async () => {
      const store = await opened.reopen(opened.graceMs);
      const { digest } = await store.chunks.put(randomBytes(1000));
      await opened.age([digest]);
      const unknown = digestOf(randomBytes(8));
      await expect(store.collect({ checkpoints: [unknown], bundles: [] })).rejects.toThrow(
        ArtifactNotFound,
      );
      expect((await store.chunks.get(digest)).length).toBe(1000);
    });

    it('share their place with bundles, which come back verified and are refused under another name', async () => {
      const { store } = opened;
      const content = randomBytes(300_000);
      const source = async function* () {
        for (let at = 0; at < content.length; at += 7000) yield content.subarray(at, at + 7000);
      };
      const put = (digest: Digest, maxBytes = 1e6) =>
        store.put(digest, source(), { owner: 'ada', maxBytes });
      const digest = digestOf(content);
      expect(await put(digest)).toEqual({ digest, bytes: content.length, deduplicated: false });
      expect(await put(digest)).toMatchObject({ deduplicated: true });
      expect((await buffer((await store.open(digest)).stream)).equals(content)).toBe(true);
      await expect(put(digestOf(Buffer.from('other')))).rejects.toThrow(DigestMismatch);
      await expect(put(digest, 1000)).rejects.toThrow(ArtifactTooLarge);
      await expect(store.open(digestOf(Buffer.from('other')))).rejects.toThrow(ArtifactNotFound);
    });

    it('leave a bundle alone that a session may still be started with, and its owner’s right to it', async () => {
      const store = await opened.reopen(1);
      const put = async (content: Buffer) => {
        const digest = digestOf(content);
        const source = (async function* () {
          yield content;
        })();
        await store.put(digest, source, { owner: 'ada', maxBytes: 1e6 });
        return digest;
      };
      const [live, dead] = [await put(randomBytes(2000)), await put(randomBytes(2000))];
      await new Promise((resolve) => setTimeout(resolve, 1100));
      await store.collect({ checkpoints: [], bundles: [live] });
      const later = await opened.reopen(hour);
      expect((await later.open(live)).bytes).toBe(2000);
      await expect(store.open(dead)).rejects.toThrow(ArtifactNotFound);
      expect([await later.ownedBy('ada', live), await later.ownedBy('ada', dead)]).toEqual([
        true,
        false,
      ]);
      expect(await later.ownedBy('eve', live)).toBe(false);
    });
  });

it('leaves nothing half written behind in the directory', async () => {
  const root = await mkdtemp(join(tmpdir(), 'vmux-chunks-'));
  try {
    const { chunks } = await ArtifactDirectory.at(root);
    await Promise.all([chunks.put(randomBytes(9000)), chunks.put(randomBytes(9000))]);
    expect(await readdir(join(root, 'incoming'))).toEqual([]);
  } finally {
    await rm(root, { recursive: true });
  }
});
