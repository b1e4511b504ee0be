import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArtifactDirectory } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import type { SandboxDriver } from '../driver';
import { baseOf } from '../work/base-of';
import { FileIndex } from '../work/checkpoint-index';
import { restoreCheckpoint } from '../work/restore-checkpoint';
import { takeCheckpoint } from '../work/take-checkpoint';
import { type Bench, type Opened, run, shell, until } from './bench';
import type { ContractWork } from './runner';

/** Everything that a tree can hold, some of it at random. Python alone makes attributes and holes. */
const makeTree = (seed: number) => `
import os, random
random.seed(${seed})
os.makedirs('/srv/tree/empty', exist_ok=True)
os.chdir('/srv/tree')
def put(name, data, mode=0o644):
    with open(name, 'wb') as f: f.write(data)
    os.chmod(name, mode)
for i in range(200):
    d = 'd%d/e%d' % (i % 7, i % 3)
    os.makedirs(d, exist_ok=True)
    put('%s/f%d' % (d, i), random.randbytes(random.choice([0, 1, 300, 5000, 70000])))
put('big', random.randbytes(3_000_001))
put('text', b'the same line again\\n' * 50_000)
put('setuid', b'x', 0o4755)
put('secret', b'y', 0o400)
os.link('d1/e1/f1', 'hard-1'); os.link('d1/e1/f1', 'd2/hard-2')
os.symlink('d1', 'link'); os.symlink('/nowhere/at/all', 'dangling')
os.mkfifo('fifo', 0o640)
put(b'odd \\xff\\n name', b'z')
os.chown('text', 1234, 4321); os.chown('link', 7, 8, follow_symlinks=False)
os.setxattr('text', 'user.note', b'\\x00\\x01 note'); os.setxattr('d3', 'user.dir', b'd')
with open('sparse', 'wb') as f:
    f.truncate(40_000_000); f.seek(20_000_000); f.write(b'middle'); f.seek(39_999_999); f.write(b'e')
os.makedirs('a/' + '/'.join(['deep'] * 40)); put('a/' + '/'.join(['deep'] * 40) + '/leaf', b'leaf')
os.chmod('d4', 0o1777); os.chmod('d5', 0o500)
os.utime('big', ns=(1_000_000_000_123_456_789, 1_000_000_000_123_456_789))
os.remove('/etc/issue')
os.system('rm -r /etc/skel /usr/share/doc/base-files; mkdir /etc/skel'); put('/etc/skel/own', b'o')
put('/etc/shells', b'changed in place\\n')
deep = sorted(os.path.join(t, n) for t, d, f in os.walk('/usr/share') for n in f if t.count('/') > 4)[0]
with open(deep, 'ab') as f: f.write(b'changed in place')
with open('/srv/tree/deep-name', 'w') as f: f.write(deep)
os.symlink('x', 'old'); os.utime('old', ns=(-5_000_000_001, -5_000_000_001), follow_symlinks=False)
`;

const describeTree = `
import os, hashlib
def show(p):
    s = os.lstat(p)
    kind = oct(s.st_mode); more = ''
    if os.path.islink(p): more = os.readlink(p)
    elif os.path.isfile(p): more = '%d %s %d' % (s.st_size, hashlib.sha256(open(p, 'rb').read()).hexdigest(), s.st_nlink)
    attrs = [] if os.path.islink(p) else sorted((n, os.getxattr(p, n)) for n in os.listxattr(p))
    print(ascii(p), kind, s.st_uid, s.st_gid, s.st_mtime_ns, more, attrs)
for top, dirs, files in os.walk('/srv/tree'):
    dirs.sort()
    show(top)
    for name in sorted(files + [d for d in dirs if os.path.islink(os.path.join(top, d))]): show(os.path.join(top, name))
show('/etc/shells'); show(open('/srv/tree/deep-name').read()); print(os.stat('/srv/tree/sparse').st_blocks < 2000)
print('removed', os.listdir('/etc/skel'), os.path.lexists('/etc/issue'), os.path.lexists('/usr/share/doc/base-files'))
`;

/** The store, and what a runner does with it, on sandboxes of the driver under test. */
class CheckpointBench {
  #root: string | undefined;
  #artifacts: ArtifactDirectory | undefined;

  constructor(readonly bench: Bench) {}

  async open(): Promise<void> {
    this.#root = await mkdtemp(join(tmpdir(), 'vmux-contract-store-'));
    this.#artifacts = await ArtifactDirectory.at(this.#root);
  }

  async close(): Promise<void> {
    if (this.#root) await rm(this.#root, { recursive: true, force: true });
  }

  get storeDirectory(): string {
    if (!this.#root) throw new Error('the store is not open');
    return this.#root;
  }

  get store() {
    if (!this.#artifacts) throw new Error('the store is not open');
    return this.#artifacts.chunks;
  }

  async take(
    { id, client }: Opened,
    more: {
      index?: FileIndex;
      hold?: boolean;
      signal?: AbortSignal;
      driver?: SandboxDriver;
    } = {},
  ): Promise<Checkpoint> {
    const signal = more.signal ?? new AbortController().signal;
    const base = await baseOf(client.files, null, signal);
    const taken = await takeCheckpoint({
      client,
      store: this.store,
      index: more.index ?? new FileIndex(),
      base,
      removed: async () => (await (more.driver ?? this.bench.driver).removed?.(id)) ?? [],
      maxBytes: 2 ** 33,
      hold: more.hold ?? false,
      signal,
    });
    const checkpointId = `c-${randomBytes(4).toString('hex')}`;
    return { checkpointId, name: null, epoch: id.epoch, ...taken, native: null, base };
  }

  async restore(
    checkpoint: Checkpoint,
    into: Opened,
    more: { index?: FileIndex; allowBaseChange?: boolean } = {},
  ): Promise<string> {
    const { signal } = new AbortController();
    return restoreCheckpoint(checkpoint, {
      client: into.client,
      store: this.store,
      index: more.index ?? new FileIndex(),
      base: await baseOf(into.client.files, null, signal),
      allowBaseChange: more.allowBaseChange ?? false,
      signal,
    });
  }
}

const python = (script: string) => ({ ...shell(''), argv: ['python3', '-c', script] });

async function shown({ client }: Opened): Promise<string> {
  const { stdout, stderr, exec } = await run(client, python(describeTree));
  if (exec.outcome.kind !== 'exited' || exec.outcome.code !== 0) throw new Error(stderr.toString());
  return stdout.toString();
}

/** Kills a runner so many milliseconds after it said that it begins. */
async function killedRunner(bench: Bench, work: ContractWork, afterMs: number): Promise<void> {
  const { command, args } = bench.target.runner;
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

const withoutRemovals = (shown: string): string => shown.replace(/^removed .*$/m, '');

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
      expect(again.newBytes).toBeLessThan(first.newBytes / 10);
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
      expect(second.newBytes).toBeLessThan(first.newBytes / 10);
      expect(second.bytes).toBe(first.bytes - 20_000 + 10 * 5);
    }, 60_000);

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
