import type { ChunkStore } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import { checkpointFiles } from '../work/layer-stream';
import { type Bench, type Opened, run, shell } from './bench';
import { CheckpointBench } from './checkpoint-bench';
import { makeTree, python, shown } from './checkpoint-tree';

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

    const keep = async ({ id }: Opened, { artifact }: Checkpoint): Promise<string> => {
      const keeper = await bench.driver.keeper?.(id, artifact ?? '');
      if (!keeper) throw new Error('the driver keeps none');
      await keeper.keep(checkpointFiles(checkpoints.store, artifact ?? ''));
      return keeper.ref;
    };

    const restored = async (ref: string, checkpoint: Checkpoint) => {
      const id = bench.newId();
      await bench.driver.restore(bench.specOf(id), { ref, bytes: 0 });
      const opened = { id, client: await bench.connect(id) };
      const counted = counting(checkpoints.store);
      const digest = await checkpoints.restore(checkpoint, opened, {
        present: true,
        store: counted.store,
      });
      expect(digest).toBe(checkpoint.manifestDigest);
      return { ...opened, readBytes: counted.bytes() };
    };

    it('come back as they were, time after time, and hardly anything is unpacked', async () => {
      const source = await bench.sandbox();
      await run(source.client, python(makeTree(4)));
      const before = await shown(source);
      const first = await checkpoints.take(source);
      const ref = await keep(source, first);
      for (const _ of [1, 2]) {
        const { id, client, readBytes } = await restored(ref, first);
        expect(await shown({ id, client })).toBe(before);
        expect(readBytes).toBeLessThan(first.bytes / 4);
        expect(await bench.driver.adopt(id)).toMatchObject({ restoredFrom: ref });
      }
    }, 240_000);

    it('are kept over one another: changes, removals and what was removed and made again', async () => {
      const source = await bench.sandbox();
      await run(source.client, python(makeTree(5)));
      await keep(source, await checkpoints.take(source));
      const change = `cd /srv/tree; echo more >> big; rm -r d2 text; mv d3 moved; rm hard-1; ln big other
rm -r d1; mkdir d1; echo anew > d1/anew; rm -r /usr/share/doc/dpkg; echo again > /etc/issue; rm setuid; mkdir setuid
mkdir -p /opt/new; cp -a /etc/shells /opt/new; echo x > .wh.odd; mkdir -p .wh.dir/in; rm /etc/skel/own; touch -d @1 fifo`;
      const changed = await run(source.client, shell(change));
      expect(changed.stderr.toString()).toBe('');
      const before = await shown(source);
      const second = await checkpoints.take(source);
      const ref = await keep(source, second);
      const copy = await restored(ref, second);
      expect(await shown(copy)).toBe(before);
      const gone = await run(copy.client, shell('ls -d /usr/share/doc/dpkg /srv/tree/d2'));
      expect(gone.stdout.toString()).toBe('');

      // What goes on from there is kept over it in turn.
      await run(
        copy.client,
        shell('rm /etc/issue; rm -r /srv/tree/moved; echo 3 > /srv/tree/third'),
      );
      const third = await checkpoints.take(copy, { over: second });
      const last = await restored(await keep(copy, third), third);
      expect(await shown(last)).toBe(await shown(copy));
      const base = await bench.sandbox();
      expect(await checkpoints.restore(third, base)).toBe(third.manifestDigest);
      expect(await shown(base)).toBe(await shown(copy));
    }, 240_000);

    it('are forgotten on request, and what was made of one goes on', async () => {
      const source = await bench.sandbox();
      await run(source.client, shell('echo kept > /srv/kept'));
      const checkpoint = await checkpoints.take(source);
      const ref = await keep(source, checkpoint);
      const copy = await restored(ref, checkpoint);
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
