import { createHash } from 'node:crypto';
import { FileIndex } from '../work/checkpoint-index';
import { type Bench, run, shell } from './bench';
import { CheckpointBench } from './checkpoint-bench';
import { makeTree, python, shown, withoutRemovals } from './checkpoint-tree';

export function checkpointContract(bench: Bench): void {
  describe('checkpoints', () => {
    const checkpoints = new CheckpointBench(bench);
    beforeAll(() => checkpoints.open());
    afterAll(() => checkpoints.close());

    it('puts back every kind of file as it was, twice the same', async () => {
      const source = await bench.sandbox();
      const made = await run(source.client, python(makeTree(1)));
      expect(made.stderr.toString()).toBe('');
      const before = await shown(source);
      const checkpoint = await checkpoints.take(source);
      for (const target of [await bench.sandbox(), await bench.sandbox()]) {
        expect(await checkpoints.restore(checkpoint, target)).toBe(checkpoint.manifestDigest);
        const after = await shown(target);
        if (bench.driver.removed) expect(after).toBe(before);
        else expect(withoutRemovals(after)).toBe(withoutRemovals(before));
      }
      expect(before.split('\n').length).toBeGreaterThan(200);
    }, 120_000);

    it('takes the same again after a restore, and stores next to nothing for it', async () => {
      const source = await bench.sandbox();
      await run(source.client, python(makeTree(2)));
      const first = await checkpoints.take(source);
      const target = await bench.sandbox();
      const index = new FileIndex();
      await checkpoints.restore(first, target, { index });
      await new Promise((resolve) => setTimeout(resolve, 200));
      const again = await checkpoints.take(target, { index });
      expect(again.manifestDigest).toBe(first.manifestDigest);
      expect(again.newBytes).toBeLessThan(first.newBytes / 4);
    }, 120_000);

    it('of a sandbox that nobody used holds almost nothing', async () => {
      const untouched = await bench.sandbox();
      await run(untouched.client, shell('true'));
      const { bytes } = await checkpoints.take(untouched);
      expect(bytes).toBeLessThan(4096);
    });

    it('stores only what has changed since the one before', async () => {
      const source = await bench.sandbox();
      const index = new FileIndex();
      const many =
        'mkdir /srv/many; cd /srv/many; for i in $(seq 1000); do head -c 20000 /dev/urandom > f$i; done';
      await run(source.client, shell(many));
      await new Promise((resolve) => setTimeout(resolve, 200));
      const first = await checkpoints.take(source, { index });
      expect(first.newBytes).toBeGreaterThan(19_000_000);
      await run(
        source.client,
        shell('cd /srv/many; for i in $(seq 10); do echo more >> f$i; done; rm f500'),
      );
      const second = await checkpoints.take(source, { index });
      expect(second.newBytes).toBeLessThan(first.newBytes / 4);
      expect(second.bytes).toBe(first.bytes - 20_000 + 10 * 5);
    }, 60_000);

    it('finds what was changed though its size and its time say nothing', async () => {
      const source = await bench.sandbox();
      const index = new FileIndex();
      const write = (text: string) =>
        run(
          source.client,
          shell(`cd /srv; printf ${text} > f; touch -d @1000000000 f; printf ${text} > g; mv g h`),
        );
      await write('one');
      await new Promise((resolve) => setTimeout(resolve, 200));
      const first = await checkpoints.take(source, { index });
      const same = await checkpoints.take(source, { index });
      expect(same.manifestDigest).toBe(first.manifestDigest);
      await write('two');
      const target = await bench.sandbox();
      await checkpoints.restore(await checkpoints.take(source, { index }), target);
      const { stdout } = await run(target.client, shell('cat /srv/f /srv/h'));
      expect(stdout.toString()).toBe('twotwo');
    });

    it('refuses another base unless that is allowed', async () => {
      const source = await bench.sandbox();
      await run(source.client, shell('echo kept > /srv/kept'));
      const checkpoint = await checkpoints.take(source);
      const elsewhere = {
        ...checkpoint,
        base: { ...checkpoint.base, digest: createHash('sha256').digest('hex') },
      };
      const target = await bench.sandbox();
      await expect(checkpoints.restore(elsewhere, target)).rejects.toMatchObject({
        next: 'refuse',
        message: expect.stringContaining('another base'),
      });
      const digest = await checkpoints.restore(elsewhere, target, { allowBaseChange: true });
      expect(digest).toBe(checkpoint.manifestDigest);
    });
  });
}
