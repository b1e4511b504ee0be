import { createHash } from 'node:crypto';
import { type Bench, finish, run, shell } from './bench';

const BYTES = 50 * 1024 * 1024;
const SILENCE_SECONDS = process.env.VMUX_CONTRACT_FULL === '1' ? 60 : 1;

export function outputContract(bench: Bench): void {
  describe('output', () => {
    it('carries 50 MB of binary output exactly, once read whole and once from the middle', async () => {
      const { client } = await bench.sandbox();
      const random = shell(`head -c ${BYTES} /dev/urandom | tee /tmp/blob`);
      await client.start(random);
      const whole = createHash('sha256');
      const secondHalf = createHash('sha256');
      let size = 0;
      const middle = 31_415_926;
      for await (const item of client.read(random.execId)) {
        if (item.kind === 'end') {
          expect(item.exec).toMatchObject({ outcome: { kind: 'exited', code: 0 } });
          expect(item.exec).toMatchObject({ stdoutBytes: BYTES, stderrBytes: 0 });
        } else if (item.kind === 'stdout') {
          expect(item.mergedOffset).toBe(size);
          whole.update(item.data);
          secondHalf.update(item.data.subarray(Math.max(0, middle - size)));
          size += item.data.length;
        }
      }
      expect(size).toBe(BYTES);
      const inside = await run(client, shell('sha256sum < /tmp/blob'));
      expect(inside.stdout.toString().slice(0, 64)).toBe(whole.digest('hex'));
      const again = createHash('sha256');
      for await (const item of client.read(random.execId, { offset: middle }))
        if (item.kind === 'stdout') again.update(item.data);
      expect(again.digest('hex')).toBe(secondHalf.digest('hex'));
    }, 120_000);

    it('keeps stdout and stderr apart and merges them in the order they came', async () => {
      const { client } = await bench.sandbox();
      const script = 'for i in 1 2 3 4 5; do echo o$i; sleep 0.02; echo e$i >&2; sleep 0.02; done';
      const exec = shell(script);
      await client.start(exec);
      let merged = '';
      for await (const item of client.read(exec.execId)) if ('data' in item) merged += item.data;
      expect(merged).toBe([1, 2, 3, 4, 5].map((i) => `o${i}\ne${i}\n`).join(''));
      let apart = '';
      const options = { stream: 'stderr', offset: 3 } as const;
      for await (const item of client.read(exec.execId, options))
        if ('data' in item) apart += item.data;
      expect(apart).toBe('e2\ne3\ne4\ne5\n');
    });

    it('frees what is acknowledged and says so to a reader who comes too late', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('head -c 100000 /dev/zero');
      const { stdout } = await run(client, exec);
      expect(stdout).toHaveLength(100_000);
      await client.acknowledge(exec.execId, 60_000);
      const rest = client.read(exec.execId, { offset: 60_000 });
      expect((await rest.next()).value).toMatchObject({ kind: 'stdout', mergedOffset: 60_000 });
      await rest.return(undefined);
      await client.acknowledge(exec.execId, 100_000);
      await expect(client.read(exec.execId, { offset: 10 }).next()).rejects.toMatchObject({
        reason: 'gone',
        detail: 100_000,
      });
      await client.release(exec.execId);
      expect((await client.state(exec.execId)).outcome).toEqual({ kind: 'exited', code: 0 });
    });

    it(`waits for a command that writes nothing for ${SILENCE_SECONDS} s`, async () => {
      const { client } = await bench.sandbox();
      const exec = shell(`sleep ${SILENCE_SECONDS}; echo at last`);
      await client.start(exec);
      const { exec: end, stdout } = await finish(client, exec.execId);
      expect(stdout.toString()).toBe('at last\n');
      expect(end.outcome).toEqual({ kind: 'exited', code: 0 });
    }, 120_000);
  });
}
