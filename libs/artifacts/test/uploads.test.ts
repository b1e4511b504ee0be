import { randomBytes } from 'node:crypto';
import { readdirSync, rmSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import {
  ArtifactDirectory,
  ArtifactTooLarge,
  DigestMismatch,
  digestOf,
  UploadGap,
  UploadOverrun,
  Uploads,
} from '@vmux/artifacts';
import { releaseAll, temporaryDirectory } from '@vmux/testing';

afterAll(releaseAll);

const whole = randomBytes(10_000);
const digest = digestOf(whole);
const total = whole.length;
const options = { owner: 'ada', maxBytes: 20_000 };
async function* from(...pieces: readonly (Uint8Array | Error)[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) {
    if (piece instanceof Error) throw piece;
    yield piece;
  }
}

describe('uploads', () => {
  let root: string;
  let store: ArtifactDirectory;
  let uploads: Uploads;
  const directory = () => join(root, 'uploads');
  const files = () =>
    readdirSync(directory()).flatMap((owner) =>
      readdirSync(join(directory(), owner)).map((name) => join(directory(), owner, name)),
    );
  const part = (begin: number, end: number, owner = 'ada') =>
    uploads.take(digest, { from: begin, end, total }, from(whole.subarray(begin, end)), {
      ...options,
      owner,
    });
  beforeEach(async () => {
    root = temporaryDirectory('uploads');
    store = await ArtifactDirectory.at(root);
    uploads = await Uploads.at(directory(), store);
  });

  it('come in parts, which may overlap and be sent again, and are stored when all is there', async () => {
    expect(await part(0, 4_000)).toEqual({ offset: 4_000 });
    expect(await part(3_000, 7_000)).toEqual({ offset: 7_000 });
    expect(await uploads.offsetOf('ada', digest)).toBe(7_000);
    expect(await part(7_000, total)).toEqual({ digest, bytes: total, deduplicated: false });
    expect((await buffer((await store.open(digest)).stream)).equals(whole)).toBe(true);
    expect(await store.ownedBy('ada', digest)).toBe(true);
    expect(files()).toEqual([]);
  });

  it('keep what has come of a part that is cut, also across a restart', async () => {
    const cut = from(whole.subarray(0, 6_000), new Error('cut'));
    await expect(
      uploads.take(digest, { from: 0, end: total, total }, cut, options),
    ).rejects.toThrow('cut');
    uploads = await Uploads.at(directory(), store);
    expect(await uploads.offsetOf('ada', digest)).toBe(6_000);
    expect(await part(6_000, total)).toMatchObject({ bytes: total });
  });

  it('are nothing to another owner, who may neither see them nor go on with them', async () => {
    await part(0, 4_000);
    expect(await uploads.offsetOf('bob', digest)).toBe(0);
    await expect(part(4_000, total, 'bob')).rejects.toMatchObject({ offset: 0 });
    expect(await part(4_000, total)).toMatchObject({ bytes: total });
    // What ada has stored tells bob nothing either.
    expect(await uploads.offsetOf('bob', digest)).toBe(0);
    expect(await part(0, total, 'bob')).toMatchObject({ deduplicated: false });
  });

  it('are gone when they have expired: what would go on is told where to begin', async () => {
    await part(0, 4_000);
    const [file = ''] = files();
    const longAgo = new Date(Date.now() - 25 * 3600_000);
    utimesSync(file, longAgo, longAgo);
    const gap = await part(4_000, total).catch((error) => error);
    expect(gap).toBeInstanceOf(UploadGap);
    expect([gap.offset, gap.message]).toEqual([0, expect.stringContaining('0 bytes are here')]);
    expect(files()).toEqual([]);
    await part(0, 2_000);
    utimesSync(file, longAgo, longAgo);
    expect(await part(0, 1_000)).toEqual({ offset: 1_000 });
    expect(await uploads.offsetOf('ada', digest)).toBe(1_000);
    utimesSync(file, longAgo, longAgo);
    await uploads.dropExpired();
    expect(files()).toEqual([]);
  });

  it('that begin after what has come are refused', async () => {
    await part(0, 4_000);
    await expect(part(4_001, total)).rejects.toMatchObject({ offset: 4_000 });
    expect(await uploads.offsetOf('ada', digest)).toBe(4_000);
  });

  it('of something else than their digest, or of more than was announced, leave nothing', async () => {
    const wrong = from(randomBytes(total));
    await expect(
      uploads.take(digest, { from: 0, end: total, total }, wrong, options),
    ).rejects.toBeInstanceOf(DigestMismatch);
    expect(files()).toEqual([]);
    await part(0, 4_000);
    const long = from(whole.subarray(4_000), Buffer.alloc(1));
    await expect(
      uploads.take(digest, { from: 4_000, end: total, total }, long, options),
    ).rejects.toBeInstanceOf(UploadOverrun);
    expect(files()).toEqual([]);
    expect(await store.ownedBy('ada', digest)).toBe(false);
    expect(readdirSync(join(root, 'incoming'))).toEqual([]);
  });

  it('of more than is allowed are refused before anything is read', async () => {
    const unread = from(new Error('it was read'));
    const size = options.maxBytes + 1;
    await expect(
      uploads.take(digest, { from: 0, end: size, total: size }, unread, options),
    ).rejects.toBeInstanceOf(ArtifactTooLarge);
    expect(files()).toEqual([]);
  });

  it('of one owner are few: the oldest makes room', async () => {
    const begun = Array.from({ length: 6 }, () => randomBytes(100));
    for (const bytes of begun) {
      const name = digestOf(bytes);
      await uploads.take(
        name,
        { from: 0, end: 50, total: 100 },
        from(bytes.subarray(0, 50)),
        options,
      );
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const offsets = await Promise.all(begun.map((b) => uploads.offsetOf('ada', digestOf(b))));
    expect(offsets).toEqual([0, 0, 50, 50, 50, 50]);
  });

  it('that make room while they are sent say so', async () => {
    async function* slow() {
      yield whole.subarray(0, 5_000);
      for (const file of files()) rmSync(file);
      yield whole.subarray(5_000);
    }
    await expect(
      uploads.take(digest, { from: 0, end: total, total }, slow(), options),
    ).rejects.toBeInstanceOf(UploadGap);
    expect(await store.ownedBy('ada', digest)).toBe(false);
  });
});
