import { randomBytes } from 'node:crypto';
import {
  ArtifactNotFound,
  type ArtifactStore,
  type Digest,
  digestOf,
  ManifestWriter,
  readEntries,
  readRoot,
} from '@vmux/artifacts';
import { describeUnless, releaseAll, seededRandom } from '@vmux/testing';
import { noMoto, type Opened, openDirectory, openMoto } from './servers';

const GRACE_MS = 4000;
const RUN_MS = 15_000;
const WRITERS = 3;
const ROUNDS = 5;

/** Of which checkpoints are made: the same come up again and again, long after they were last needed. */
const contents = Array.from({ length: 30 }, (_, n) => randomBytes(500 + n));

async function take(store: ArtifactStore, chosen: readonly number[]): Promise<Digest> {
  const writer = new ManifestWriter(store.chunks);
  for (const number of [...chosen].sort((a, b) => a - b)) {
    const bytes = contents[number] ?? Buffer.alloc(0);
    const { digest: chunk } = await store.chunks.put(bytes);
    writer.add({
      ...{ type: 'file', mode: 0o644, uid: 0, gid: 0, size: bytes.length, modifiedAtNs: 1n },
      ...{ path: String(number).padStart(4, '0'), target: '', attributes: [] },
      content: {
        digest: digestOf(bytes),
        extents: [{ offset: 0, length: bytes.length }],
        segments: [{ chunk, offset: 0, length: bytes.length }],
      },
    });
  }
  return (await writer.finish({ seed: randomBytes(4).toString('hex') })).artifact;
}

async function restore({ chunks }: ArtifactStore, artifact: Digest): Promise<void> {
  for await (const { path, content } of readEntries(chunks, await readRoot(chunks, artifact)))
    for (const { chunk } of content?.segments ?? [])
      expect((await chunks.get(chunk)).equals(contents[Number(path)] ?? Buffer.alloc(0))).toBe(
        true,
      );
}

const kinds = [
  ['a directory', '', openDirectory],
  // s3rver copies an object onto itself in place: readers see half of it meanwhile.
  ['an S3 bucket (moto)', noMoto, openMoto],
] as const;

for (const [kind, reason, open] of kinds)
  describeUnless(reason === '', reason)(`collecting in ${kind} while checkpoints are taken`, () => {
    let opened: Opened;
    beforeAll(async () => {
      opened = await open();
    }, 90_000);
    afterAll(releaseAll);

    it('drops what no live one needs, and every live one can be restored', async () => {
      // The collector is another process: it has its own store.
      const collector = await opened.reopen(GRACE_MS);
      const live = new Set<Digest>();
      const until = Date.now() + RUN_MS;
      let [dropped, taken, again] = [0, 0, 0];
      const write = async (seed: number) => {
        const store = await opened.reopen(GRACE_MS);
        const random = seededRandom(seed);
        for (let round = 0; round < ROUNDS || Date.now() < until; round += 1) {
          const few = [0, 1, 2, 3].map(() => Math.floor(random.next() * contents.length));
          const artifact = await take(store, [...new Set(few)]).catch((error) => {
            // On a bucket what was renewed in the wrong moment is missed before anything refers to it.
            if (!(error instanceof ArtifactNotFound)) throw error;
            again += 1;
            return undefined;
          });
          if (artifact === undefined) continue;
          live.add(artifact);
          taken += 1;
          await new Promise((resolve) => setTimeout(resolve, 50 + random.next() * 400));
          // Few stay alive, so that pieces get old and are wanted again.
          const [oldest] = live;
          if (oldest !== undefined && live.size > 4) live.delete(oldest);
          for (const each of live) await restoreIfLive(store, each, live);
        }
      };
      const collect = async () => {
        while (Date.now() < until)
          dropped += (await collector.collect({ checkpoints: [...live], bundles: [] })).dropped;
      };
      await Promise.all([collect(), ...Array.from({ length: WRITERS }, (_, n) => write(n + 1))]);
      for (const artifact of live) await restore(collector, artifact);
      expect(taken + again).toBeGreaterThanOrEqual(WRITERS * ROUNDS);
      expect(dropped).toBeGreaterThan(0);
      expect(again).toBeLessThan(taken);
    }, 90_000);
  });

/** One that another writer has given up meanwhile need not be there any more. */
async function restoreIfLive(
  store: ArtifactStore,
  artifact: Digest,
  live: ReadonlySet<Digest>,
): Promise<void> {
  await restore(store, artifact).catch((error) => {
    if (live.has(artifact)) throw error;
  });
}
