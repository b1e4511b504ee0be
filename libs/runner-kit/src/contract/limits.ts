import type { OtherLimit } from '../driver';
import { type Bench, finish, run, shell, until } from './bench';

/** Limits that a driver does not enforce, with the reason. */
export type Lacking = Readonly<Partial<Record<OtherLimit, string>>>;

export function limitsContract(bench: Bench, lacking: Lacking): void {
  describe('limits', () => {
    const unlessLacking = (limit: OtherLimit) => {
      const why = lacking[limit];
      return why === undefined
        ? it
        : (title: string, test: () => Promise<void>, timeoutMs?: number) =>
            it.skip(`${title} (skipped: ${why})`, test, timeoutMs);
    };

    it('says which of them it does not enforce, and why', async () => {
      const { missing } = await bench.driver.capabilities();
      for (const limit of ['memoryLimit', 'cpuLimit', 'pidsLimit'] as const)
        if (lacking[limit]) expect(missing[limit]).toEqual(expect.any(String));
    });

    unlessLacking('pidsLimit')(
      'holds a fork bomb, goes on answering, and can end it',
      async () => {
        const { client } = await bench.sandbox({ pids: 64 });
        // Every process of it forks for ever, and tries again when it is refused: a shell would give up.
        const bomb = shell(
          `exec perl -e 'while (1) { select(undef, undef, undef, 0.05) if !defined fork }'`,
        );
        await client.start(bomb);
        const refused = await until(async () => {
          const state = await client.start(shell('true'));
          return state.outcome.kind === 'failed' && state.outcome;
        });
        expect(refused.errno).toBe(11);
        const { pids } = await client.figures();
        if (pids !== undefined) expect(pids).toBeLessThanOrEqual(64);
        await client.cancel(bomb.execId, 0);
        await until(async () => {
          const state = await client.start(shell('true'));
          return state.outcome.kind !== 'failed';
        });
        expect(await bench.driver.list()).not.toHaveLength(0);
      },
      60_000,
    );

    unlessLacking('memoryLimit')(
      'ends a command that takes more memory than there is, and nothing else',
      async () => {
        const { client, id } = await bench.sandbox({ memoryMiB: 64 });
        const bystander = shell('echo here; exec sleep 1000');
        await client.start(bystander);
        const hog = await run(client, shell('exec tail /dev/zero'));
        expect(hog.exec.outcome).toMatchObject({ kind: 'signalled', signal: 9 });
        expect((await client.state(bystander.execId)).outcome.kind).toBe('running');
        expect((await bench.driver.probe(id)).state).toBe('running');
        expect((await run(client, shell('echo fine'))).stdout.toString()).toBe('fine\n');
      },
      60_000,
    );

    it('refuses to write more than the disk holds, and still records what is said about it, or says that it cannot', async () => {
      const { offered, missing } = await bench.driver.capabilities();
      if (!offered.includes('diskLimit')) {
        expect(missing.diskLimit).toEqual(expect.any(String));
        return;
      }
      const { client } = await bench.sandbox({ diskMiB: 64 });
      const full = await run(client, shell('dd if=/dev/zero of=/tmp/big bs=1M count=200 2>&1'));
      expect(full.exec.outcome).toMatchObject({ kind: 'exited', code: 1 });
      expect(full.stdout.toString()).toContain('No space left on device');
      await run(client, shell('rm /tmp/big'));
      const again = await run(client, shell('dd if=/dev/zero of=/tmp/big bs=1M count=20'));
      expect(again.exec.outcome).toEqual({ kind: 'exited', code: 0 });
    }, 60_000);

    it('ends everything on stop, politely first, and its output can still be read', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('trap "echo bye; exit 5" TERM; echo up; while :; do sleep 0.05; done');
      await client.start(exec);
      const output = client.read(exec.execId);
      await output.next();
      await output.return(undefined);
      await client.stop(10_000);
      const { exec: end, stdout } = await finish(client, exec.execId);
      expect(end.outcome).toEqual({ kind: 'exited', code: 5 });
      expect(stdout.toString()).toBe('up\nbye\n');
      await expect(client.start(shell('true'))).rejects.toMatchObject({ reason: 'stopping' });
    });
  });
}
