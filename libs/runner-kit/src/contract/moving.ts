import { baseOf } from '../work/base-of';
import { type Bench, run } from './bench';
import { CheckpointBench } from './checkpoint-bench';
import { makeTree, python, shown } from './checkpoint-tree';

/** Of two drivers with the same root: what one stores the other restores, to the same digest. */
export function movingContract(one: Bench, other: Bench): void {
  describe('between them', () => {
    const checkpoints = new CheckpointBench(one);
    beforeAll(() => checkpoints.open());
    afterAll(() => checkpoints.close());

    it('says the same of the root that both are made of', async () => {
      const { signal } = new AbortController();
      const [a, b] = [await one.sandbox(), await other.sandbox()];
      const [here, there] = [
        await baseOf(a.client.files, null, signal),
        await baseOf(b.client.files, null, signal),
      ];
      expect(here).toEqual(there);
      expect(here.distribution).not.toBeNull();
    }, 60_000);

    it.each([
      ['there', () => [one, other] as const],
      ['back', () => [other, one] as const],
    ])(
      'carries every kind of file %s, to the same digest',
      async (_where, ends) => {
        const [from, to] = ends();
        const source = await from.sandbox();
        const made = await run(source.client, python(makeTree(3)));
        expect(made.stderr.toString()).toBe('');
        const checkpoint = await checkpoints.take(source, { driver: from.driver });
        const before = await shown(source);
        for (const bench of [to, from]) {
          const target = await bench.sandbox();
          expect(await checkpoints.restore(checkpoint, target)).toBe(checkpoint.manifestDigest);
          expect(await shown(target)).toBe(before);
        }
      },
      240_000,
    );
  });
}
