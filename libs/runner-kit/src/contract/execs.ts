import { randomBytes } from 'node:crypto';
import { openInput } from '../exec-input';
import { type Bench, finish, newExecId, PATH, run, shell } from './bench';

const SIGNALS = [1, 2, 3, 4, 6, 8, 9, 11, 13, 14, 15] as const;

export function execContract(bench: Bench): void {
  describe('execs', () => {
    it('reports every exit code from 0 to 255', async () => {
      const { client } = await bench.sandbox();
      const codes = Array.from({ length: 256 }, (_, code) => code);
      const found: (number | string)[] = [];
      for (let at = 0; at < codes.length; at += 32) {
        const batch = codes.slice(at, at + 32);
        const ended = await Promise.all(batch.map((code) => run(client, shell(`exit ${code}`))));
        for (const { exec } of ended)
          found.push(exec.outcome.kind === 'exited' ? exec.outcome.code : exec.outcome.kind);
      }
      expect(found).toEqual(codes);
    }, 60_000);

    it('reports the signal that ended a command', async () => {
      const { client } = await bench.sandbox();
      for (const signal of SIGNALS) {
        const { exec } = await run(client, shell(`kill -${signal} $$; sleep 10`));
        expect(exec.outcome).toMatchObject({ kind: 'signalled', signal });
      }
    });

    it('says why a command did not start', async () => {
      const { client } = await bench.sandbox();
      const absent = await client.start({ execId: newExecId(), argv: ['/no/such/program'] });
      expect(absent.outcome).toEqual({ kind: 'failed', errno: 2, stage: 'exec' });
      const nowhere = await client.start(shell('true', { cwd: '/no/such/directory' }));
      expect(nowhere.outcome).toMatchObject({ kind: 'failed', stage: 'cwd' });
      const nobody = await client.start(shell('true', { user: 'no-such-user' }));
      expect(nobody.outcome).toMatchObject({ kind: 'failed', stage: 'user' });
    });

    it('gives a command its arguments, environment, directory and user exactly', async () => {
      const { client } = await bench.sandbox();
      const { stdout } = await run(client, {
        execId: newExecId(),
        argv: ['sh', '-c', 'printf "%s|" "$@"; pwd; id -u; printf "%s" "$V"', 'x', 'a b', '', '*'],
        env: { PATH, V: 'ü\n"' },
        cwd: '/usr',
        user: '65534:65534',
      });
      expect(stdout.toString()).toBe('a b||*|/usr\n65534\nü\n"');
    });

    it('runs 200 commands at once, each with its own input, output and end', async () => {
      const { client } = await bench.sandbox();
      const execs = Array.from({ length: 200 }, (_, n) =>
        shell(`read -r line; echo "$line"; exit ${n % 200}`, { stdin: true }),
      );
      await Promise.all(execs.map((exec) => client.start(exec)));
      const running = (await client.states()).filter(({ outcome }) => outcome.kind === 'running');
      expect(running).toHaveLength(200);
      const ended = await Promise.all(
        execs.map(async (exec, n) => {
          const output = finish(client, exec.execId);
          await openInput(client, exec.execId).write(Buffer.from(`I am ${n}\n`));
          return output;
        }),
      );
      for (const [n, { exec, stdout }] of ended.entries()) {
        expect(stdout.toString()).toBe(`I am ${n}\n`);
        expect(exec.outcome).toEqual({ kind: 'exited', code: n % 200 });
      }
    }, 60_000);

    it('never runs a command twice, however often it is started', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('echo once >> /tmp/count; echo $$');
      const { stdout } = await run(client, exec);
      const repeats = await Promise.all([1, 2, 3].map(() => client.start(exec)));
      for (const repeat of repeats) expect(repeat.outcome).toEqual({ kind: 'exited', code: 0 });
      expect((await finish(client, exec.execId)).stdout).toEqual(stdout);
      expect((await run(client, shell('cat /tmp/count'))).stdout.toString()).toBe('once\n');
    });

    it('never starts a command that was cancelled first, and ends one that runs', async () => {
      const { client } = await bench.sandbox();
      const unseen = shell('echo ran > /tmp/ran');
      expect((await client.cancel(unseen.execId, 0)).outcome).toEqual({ kind: 'cancelled' });
      expect((await client.start(unseen)).outcome).toEqual({ kind: 'cancelled' });
      await expect(client.files.stat('/tmp/ran')).rejects.toMatchObject({ errno: 2 });
      const polite = shell('trap "echo bye; exit 3" TERM; echo up; while :; do sleep 0.05; done');
      await client.start(polite);
      const output = client.read(polite.execId);
      await output.next();
      await client.cancel(polite.execId, 10_000);
      await output.return(undefined);
      const bye = await finish(client, polite.execId);
      expect(bye.exec.outcome).toEqual({ kind: 'exited', code: 3 });
      const stubborn = shell('trap "" TERM; echo up; while :; do sleep 0.05; done');
      await client.start(stubborn);
      const held = client.read(stubborn.execId);
      await held.next();
      await client.cancel(stubborn.execId, 50);
      await held.return(undefined);
      expect((await finish(client, stubborn.execId)).exec.outcome).toMatchObject({ signal: 9 });
    });

    it('feeds a megabyte of binary input exactly, and its end', async () => {
      const { client } = await bench.sandbox();
      const input = randomBytes(1_048_577);
      const { stdout, exec } = await run(client, shell('cat'), input);
      expect(stdout.equals(input)).toBe(true);
      expect(exec.outcome).toEqual({ kind: 'exited', code: 0 });
    });

    it('says what a command used once it has ended, with what it waited for', async () => {
      const { client } = await bench.sandbox();
      // 64 MiB held, and processor time taken, in a child of the shell.
      const script = 'perl -e \'$m = "x" x (64 << 20); 1 while (times)[0] < 0.2\'; true';
      const { exec } = await run(client, shell(script));
      const used = await client.usage(exec.execId);
      expect(used.cpuUs).toBeGreaterThanOrEqual(200_000);
      expect(used.memoryPeakBytes).toBeGreaterThanOrEqual(64 * 1024 * 1024);
      expect(used).toMatchObject({
        readBytes: expect.any(Number),
        writtenBytes: expect.any(Number),
      });
      expect((await finish(client, exec.execId, { usage: true })).usage).toEqual(used);
      expect((await finish(client, exec.execId)).usage).toBeUndefined();
      const running = shell('exec sleep 1000');
      await client.start(running);
      expect(await client.usage(running.execId)).toEqual({});
      await client.cancel(running.execId, 0);
    });

    it('takes repeated input once', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('cat', { stdin: true });
      await client.start(exec);
      const write = { execId: exec.execId, writer: 5, offset: 0, data: Buffer.from('abc') };
      for (let repeat = 0; repeat < 3; repeat++) expect((await client.stdin(write)).next).toBe(3);
      await expect(client.stdin({ ...write, offset: 9 })).rejects.toMatchObject({ reason: 'gap' });
      await client.stdin({ ...write, offset: 1, data: Buffer.from('bcd'), end: true });
      expect((await finish(client, exec.execId)).stdout.toString()).toBe('abcd');
    });
  });
}
