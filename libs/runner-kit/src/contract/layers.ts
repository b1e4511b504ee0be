import type { ChunkStore } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import { checkpointFiles } from '../work/layer-stream';
import { type Bench, type Opened, run, shell, until } from './bench';
import { CheckpointBench } from './checkpoint-bench';
import { makeTree, python, shown, withoutRemovals } from './checkpoint-tree';

interface Kept {
  readonly checkpoint: Checkpoint;
  readonly ref: string;
}

/** Of drivers that keep a form of their own beside the portable one. */
export function layerContract(bench: Bench): void {
  describe('they', () => {
    const checkpoints = new CheckpointBench(bench);
    beforeAll(() => checkpoints.open());
    afterAll(async () => {
      const { driver } = bench;
      for (const { ref } of (await driver.checkpoints?.()) ?? []) await driver.forget?.(ref);
      await checkpoints.close();
    });

    /** Both forms, of one moment. */
    const take = async (source: Opened, over?: Checkpoint): Promise<Kept> => {
      const { driver } = bench;
      const { id } = source;
      const { snapshot } = driver;
      if (!snapshot) {
        const checkpoint = await checkpoints.take(source, { over });
        const keeper = await driver.keeper?.(id, checkpoint.artifact ?? '');
        if (!keeper) throw new Error('the driver keeps none');
        await keeper.keep(checkpointFiles(checkpoints.store, checkpoint.artifact ?? ''));
        return { checkpoint, ref: keeper.ref };
      }
      let ref = '';
      const alongside = async (sinceNs: bigint) => {
        ref = (await snapshot.call(driver, id, { sinceNs })).ref;
      };
      return { checkpoint: await checkpoints.take(source, { over, alongside }), ref };
    };

    const restored = async ({ ref, checkpoint }: Kept) => {
      const id = bench.newId();
      await bench.driver.restore(bench.specOf(id), { ref, bytes: 0 });
      const opened = { id, client: await bench.connect(id) };
      const counted = counting(checkpoints.store);
      const digest = await checkpoints.restore(checkpoint, opened, {
        present: bench.driver.snapshot ? 'by its provider' : 'of its files',
        store: counted.store,
      });
      expect(digest).toBe(checkpoint.manifestDigest);
      return { ...opened, readBytes: counted.bytes() };
    };

    it('come back as they were, time after time, and hardly anything is unpacked', async () => {
      const source = await bench.sandbox();
      await run(source.client, python(makeTree(4)));
      const before = await shown(source);
      const first = await take(source);
      for (const _ of [1, 2]) {
        const { id, client, readBytes } = await restored(first);
        expect(await shown({ id, client })).toBe(before);
        expect(readBytes).toBeLessThan(first.checkpoint.bytes / 4);
        expect(await bench.driver.adopt(id)).toMatchObject({ restoredFrom: first.ref });
      }
    }, 240_000);

    it('are kept over one another: changes, removals and what was removed and made again', async () => {
      const source = await bench.sandbox();
      await run(source.client, python(makeTree(5)));
      await take(source);
      const change = `cd /srv/tree; echo more >> big; rm -r d2 text; mv d3 moved; rm hard-1; ln big other
rm -r d1; mkdir d1; echo anew > d1/anew; rm -r /usr/share/doc/dpkg; echo again > /etc/issue; rm setuid; mkdir setuid
mkdir -p /opt/new; cp -a /etc/shells /opt/new; echo x > .wh.odd; mkdir -p .wh.dir/in; rm /etc/skel/own; touch -d @1 fifo`;
      const changed = await run(source.client, shell(change));
      expect(changed.stderr.toString()).toBe('');
      const before = await shown(source);
      const second = await take(source);
      const copy = await restored(second);
      expect(await shown(copy)).toBe(before);
      const gone = await run(copy.client, shell('ls -d /usr/share/doc/dpkg /srv/tree/d2'));
      expect(gone.stdout.toString()).toBe('');

      // What goes on from there is kept over it in turn.
      await run(
        copy.client,
        shell('rm /etc/issue; rm -r /srv/tree/moved; echo 3 > /srv/tree/third'),
      );
      const third = await take(copy, second.checkpoint);
      const last = await restored(third);
      expect(await shown(last)).toBe(await shown(copy));
      const base = await bench.sandbox();
      const { manifestDigest } = third.checkpoint;
      expect(await checkpoints.restore(third.checkpoint, base)).toBe(manifestDigest);
      const known = bench.driver.removed ? (text: string) => text : withoutRemovals;
      expect(known(await shown(base))).toBe(known(await shown(copy)));
    }, 240_000);

    it('are of the same moment as the portable form, while something writes', async () => {
      const source = await bench.sandbox();
      const writer = shell(
        'i=0; while :; do i=$((i+1)); echo $i > /srv/a; echo $i > /srv/b; : > /srv/c$((i % 50)); done',
      );
      await source.client.start(writer);
      await until(
        async () => (await source.client.files.stat('/srv/c49').catch(() => false)) !== false,
      );
      const kept = await take(source);
      await source.client.cancel(writer.execId, 0);
      const portable = await bench.sandbox();
      await checkpoints.restore(kept.checkpoint, portable);
      const id = bench.newId();
      await bench.driver.restore(bench.specOf(id), { ref: kept.ref, bytes: 0 });
      const own = { id, client: await bench.connect(id) };
      const written = shell('cd /srv; cat a b; stat -c "%n %y" a b c*');
      const [one, other] = [own, portable].map(({ client }) => run(client, written));
      expect((await one)?.stdout.toString()).toBe((await other)?.stdout.toString());
    }, 120_000);

    it('are forgotten on request, and what was made of one goes on', async () => {
      const source = await bench.sandbox();
      await run(source.client, shell('echo kept > /srv/kept'));
      const kept = await take(source);
      const { ref } = kept;
      const copy = await restored(kept);
      await bench.driver.forget?.(ref);
      await bench.driver.forget?.(ref);
      expect((await bench.driver.checkpoints?.())?.map((each) => each.ref)).not.toContain(ref);
      const { stdout } = await run(copy.client, shell('cat /srv/kept'));
      expect(stdout.toString()).toBe('kept\n');
      const again = bench.driver.restore(bench.specOf(bench.newId()), { ref, bytes: 0 });
      await expect(again).rejects.toMatchObject({ next: 'refuse', reason: 'unsupported' });
      const hostile = bench.driver.restore(bench.specOf(bench.newId()), { ref: '../x', bytes: 0 });
      await expect(hostile).rejects.toMatchObject({ next: 'refuse' });
    }, 120_000);
  });
}

/** How much of the pieces is asked for; those of the manifest too. */
function counting(store: ChunkStore): { readonly store: ChunkStore; bytes(): number } {
  let bytes = 0;
  const get = async (digest: string) => {
    const piece = await store.get(digest);
    bytes += piece.length;
    return piece;
  };
  const counted = {
    get,
    put: (clear: Uint8Array) => store.put(clear),
    sync: () => store.sync(),
    missing: (digests: Iterable<string>) => store.missing(digests),
  };
  return { store: counted, bytes: () => bytes };
}
