import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { FileIndex } from '../work/checkpoint-index';
import { type Bench, run, shell, until } from './bench';
import { CheckpointBench } from './checkpoint-bench';
import { python } from './checkpoint-tree';
import type { ContractWork } from './runner';

/** Kills a runner so many milliseconds after it said that it begins. */
async function killedRunner(bench: Bench, work: ContractWork, afterMs: number): Promise<void> {
  const { command, args } = bench.target.runner;
  if ('storeDirectory' in work) bench.target.handOver?.(work.storeDirectory);
  const child = spawn(command, [...args, JSON.stringify(work)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (data) => {
    said += data;
  });
  const exited = once(child, 'exit');
  const began = once(child.stdout, 'data').then(() => pause(afterMs));
  await Promise.race([began, exited]);
  child.kill('SIGKILL');
  expect([await exited, said]).toEqual([[null, 'SIGKILL'], '']);
}
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export function momentContract(bench: Bench): void {
  describe('the moment of a checkpoint', () => {
    const checkpoints = new CheckpointBench(bench);
    beforeAll(() => checkpoints.open());
    afterAll(() => checkpoints.close());

    it('is of one moment: a writer never gets ahead of what it has written', async () => {
      const source = await bench.sandbox();
      // Two files that are the same whenever nobody is in between; the second follows the first.
      const writer = `
import os
n = 0
while True:
    n += 1
    for name in ('a', 'b'):
        fd = os.open('/srv/' + name, os.O_WRONLY | os.O_CREAT)
        os.pwrite(fd, b'%020d' % n, 0); os.close(fd)
`;
      const exec = python(writer);
      await source.client.start(exec);
      await until(
        async () => (await source.client.files.stat('/srv/b').catch(() => false)) !== false,
      );
      const target = await bench.sandbox();
      const checkpoint = await checkpoints.take(source);
      await checkpoints.restore(checkpoint, target);
      const { stdout } = await run(target.client, shell('cat /srv/a; echo; cat /srv/b'));
      const [a, b] = stdout.toString().trim().split('\n').map(Number) as [number, number];
      expect(a - b === 0 || a - b === 1).toBe(true);
      const later = await run(source.client, shell('cat /srv/a'));
      expect(Number(later.stdout.toString())).toBeGreaterThan(a);
      await source.client.cancel(exec.execId, 0);
    });

    it('stands still for as long as it is held, whoever is connected, and goes on', async () => {
      const source = await bench.sandbox();
      const exec = shell('while :; do echo tick; sleep 0.01; done');
      await source.client.start(exec);
      const ticks = async () => (await source.client.state(exec.execId)).stdoutBytes;
      await until(async () => (await ticks()) > 0);
      await checkpoints.take(source, { hold: true });
      const other = await bench.connect(source.id);
      const before = await ticks();
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(await ticks()).toBe(before);
      // What is started meanwhile starts when it goes on.
      const late = shell('echo late');
      const started = other.start(late);
      await expect(other.files.write('/srv/x', [Buffer.from('x')])).rejects.toMatchObject({
        reason: 'limit',
      });
      await other.trees.thaw();
      await started;
      await until(async () => (await ticks()) > before);
      await source.client.cancel(exec.execId, 0);
    });

    it('lets a sandbox go on when its runner is gone in the middle', async () => {
      const source = await bench.sandbox();
      const exec = shell('while :; do echo tick; sleep 0.01; done');
      await source.client.start(exec);
      const runner = await bench.connect(source.id);
      await runner.trees.freeze();
      const ticks = async () => (await source.client.state(exec.execId)).stdoutBytes;
      const before = await ticks();
      runner.close();
      await until(async () => (await ticks()) > before);
      await source.client.cancel(exec.execId, 0);
    });

    it('leaves what had stopped by itself stopped', async () => {
      const source = await bench.sandbox();
      const exec = shell("sh -c 'kill -STOP $$; echo on' & p=$!; sleep 1000 & wait $p");
      await source.client.start(exec);
      const states = 'grep -l "^State:.T" /proc/[0-9]*/status | wc -l';
      await until(
        async () => (await run(source.client, shell(states))).stdout.toString().trim() === '1',
      );
      await checkpoints.take(source);
      expect((await run(source.client, shell(states))).stdout.toString().trim()).toBe('1');
      await source.client.cancel(exec.execId, 0);
    });

    it('finds what was written through a mapping, though no time says so', async () => {
      const source = await bench.sandbox();
      const index = new FileIndex();
      // Bytes of stdin are read into the mapping itself; perl knows system calls by number alone.
      const mapping = `
use Fcntl; $| = 1;
my ($mmap, $read) = \`uname -m\` =~ /x86_64/ ? (9, 0) : (222, 63);
sysopen(F, '/srv/map', O_RDWR | O_CREAT) or die; truncate(F, 4096);
my $at = syscall($mmap, 0, 4096, 3, 1, fileno(F), 0); die if $at == -1;
while (syscall($read, 0, $at, 1) == 1) { print "stored\\n" }
`;
      const exec = { ...shell(''), argv: ['perl', '-e', mapping], stdin: true };
      const { execId } = exec;
      await source.client.start(exec);
      const output = source.client.read(execId);
      const store = async (offset: number, byte: string) => {
        await source.client.stdin({ execId, writer: 1, offset, data: Buffer.from(byte) });
        expect((await output.next()).value).toMatchObject({ kind: 'stdout' });
      };
      await store(0, '1');
      await new Promise((resolve) => setTimeout(resolve, 200));
      const first = await checkpoints.take(source, { index });
      await store(1, '2');
      const second = await checkpoints.take(source, { index });
      expect(second.manifestDigest).not.toBe(first.manifestDigest);
      const target = await bench.sandbox();
      await checkpoints.restore(second, target);
      const { stdout } = await run(target.client, shell('head -c 1 /srv/map'));
      expect(stdout.toString()).toBe('2');
      await source.client.cancel(exec.execId, 0);
    });

    it('comes to nothing or to the whole when its runner is killed, and to the whole when it is tried again', async () => {
      const source = await bench.sandbox();
      const tree =
        'mkdir /srv/t; cd /srv/t; for i in $(seq 100); do head -c 100000 /dev/urandom > f$i; done';
      await run(source.client, shell(tree));
      const exec = shell('while :; do echo tick; sleep 0.01; done');
      await source.client.start(exec);
      const ticks = async () => (await source.client.state(exec.execId)).stdoutBytes;
      const { storeDirectory } = checkpoints;
      for (const afterMs of [5, 40, 120, 400]) {
        await killedRunner(bench, { take: source.id, storeDirectory }, afterMs);
        const before = await ticks();
        await until(async () => (await ticks()) > before);
      }
      const checkpoint = await checkpoints.take(source);
      await source.client.cancel(exec.execId, 0);
      const target = await bench.sandbox();
      for (const afterMs of [5, 40, 120, 400])
        await killedRunner(bench, { restore: target.id, checkpoint, storeDirectory }, afterMs);
      expect(await checkpoints.restore(checkpoint, target)).toBe(checkpoint.manifestDigest);
      const sums = shell('cd /srv/t && sha256sum * | sha256sum');
      expect((await run(target.client, sums)).stdout.toString()).toBe(
        (await run(source.client, { ...sums, execId: `${sums.execId}b` })).stdout.toString(),
      );
    }, 120_000);
  });
}
