import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { type SandboxId, type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import {
  describeUnless,
  projectRoot,
  releaseAll,
  skipUnless,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { NsDriver } from '../src/drivers/ns-driver';
import { keyOf } from '../src/drivers/ns-store';
import { enter } from './escape-tools';
import { firstProcessOf, isRoot, nsOptions } from './ns-target';

afterAll(releaseAll);

const idOf = (instance: string): SandboxId => ({ sessionId: 'driver-0001', epoch: 1, instance });
const specOf = (instance: string, more: Partial<SandboxSpec> = {}): SandboxSpec => ({
  id: idOf(instance),
  limits: { cpus: 1, memoryMiB: 128, diskMiB: 64, pids: 64 },
  image: null,
  egress: false,
  gpu: null,
  ...more,
});

/** The cgroups that a driver's sandboxes have on the host. */
function cgroupsOf(cgroupParent = ''): string[] {
  const roots = readdirSync('/sys/fs/cgroup').map((name) => join('/sys/fs/cgroup', name));
  return ['/sys/fs/cgroup', ...roots]
    .map((root) => join(root, cgroupParent))
    .filter((path) => existsSync(path));
}

const loopFiles = (): string =>
  readdirSync('/sys/block')
    .map((name) => join('/sys/block', name, 'loop/backing_file'))
    .filter((path) => existsSync(path))
    .map((path) => readFileSync(path, 'utf8'))
    .join('');

describeUnless(isRoot, 'namespaces with mapped ids need root on Linux')('the ns driver', () => {
  it('mounts nothing on the host, and leaves no cgroup, loop device, id range or file', async () => {
    const options = { ...nsOptions(), store: 'plain' } as const;
    const driver = new NsDriver(options);
    await driver.create(specOf('a'));
    expect(cgroupsOf(options.cgroupParent)).not.toEqual([]);
    expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(options.dataDir);
    expect(readdirSync(join(options.dataDir, 'slots'))).toEqual(['0']);
    expect(loopFiles()).toContain(options.dataDir);
    await driver.destroy(idOf('a'));
    expect(loopFiles()).not.toContain(options.dataDir);
    expect(cgroupsOf(options.cgroupParent)).toEqual([]);
    for (const name of ['s', 'slots', 'new'])
      expect(readdirSync(join(options.dataDir, name))).toEqual([]);
  });

  it('gives each sandbox its own range of user ids', async () => {
    const options = nsOptions();
    const driver = new NsDriver(options);
    await Promise.all([driver.create(specOf('a')), driver.create(specOf('b'))]);
    const mapOf = (id: SandboxId) =>
      readFileSync(`/proc/${firstProcessOf(options, id)}/uid_map`, 'utf8')
        .trim()
        .split(/\s+/);
    const [a, b] = [mapOf(idOf('a')), mapOf(idOf('b'))];
    expect([a[0], a[2], b[0], b[2]]).toEqual(['0', '65536', '0', '65536']);
    expect(Math.abs(Number(a[1]) - Number(b[1]))).toBeGreaterThanOrEqual(65_536);
    await Promise.all([driver.destroy(idOf('a')), driver.destroy(idOf('b'))]);
  });

  it('holds a command to its share of the processors', async () => {
    const options = nsOptions();
    const driver = new NsDriver(options);
    // So little that even a busy machine gives more.
    const limits = { cpus: 0.05, memoryMiB: 128, diskMiB: 64, pids: 64 };
    await driver.create(specOf('a', { limits }));
    const client = await SupervisorClient.connect(await driver.openPipe(idOf('a')), idOf('a'));
    const files = '/sys/fs/cgroup/cpu/cpu.stat /sys/fs/cgroup/cpu.stat';
    const script = `until cat ${files} 2>/dev/null | grep "nr_throttled [1-9]"; do :; done`;
    await client.start({ execId: 'spin', argv: ['sh', '-c', script] });
    let text = '';
    for await (const item of client.read('spin')) if ('data' in item) text += item.data;
    expect(text).toMatch(/^nr_throttled \d+\n$/);
    client.close();
    await driver.destroy(idOf('a'));
  });

  it('finishes or undoes what a killed runner had begun', async () => {
    const options = nsOptions();
    const program = `
      const { NsDriver } = require(process.argv[1]);
      const driver = new NsDriver(JSON.parse(process.argv[2]));
      const spec = JSON.parse(process.argv[3]);
      driver.capabilities().then(async () => {
        console.log('creating');
        for (const instance of ['a', 'b', 'c', 'd', 'e', 'f'])
          driver.create({ ...spec, id: { ...spec.id, instance } });
      });`;
    const module = join(projectRoot(), 'dist/apps/runner-local/src/drivers/ns-driver.js');
    const args = ['-e', program, module, JSON.stringify(options), JSON.stringify(specOf('x'))];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    await until(() => readdirSync(join(options.dataDir, 's')).length >= 3);
    child.kill('SIGKILL');
    await once(child, 'exit');
    const driver = new NsDriver(options);
    const found = await driver.list();
    expect(found.length).toBeGreaterThanOrEqual(3);
    for (const { id, probe } of found) {
      if (probe.state === 'running') expect(await driver.adopt(id)).toMatchObject({ id });
      await driver.destroy(id);
    }
    expect(await driver.list()).toEqual([]);
    expect(cgroupsOf(options.cgroupParent)).toEqual([]);
    const next = new NsDriver(options);
    await next.create(specOf('again'));
    expect(readdirSync(join(options.dataDir, 'new'))).toEqual([]);
    expect(readdirSync(join(options.dataDir, 'slots'))).toHaveLength(1);
    await next.destroy(idOf('again'));
  }, 60_000);

  it('removes what a runner left that was killed while it looked whether it can make sandboxes', async () => {
    const options = nsOptions();
    const program =
      'new (require(process.argv[1]).NsDriver)(JSON.parse(process.argv[2])).capabilities()';
    const module = join(projectRoot(), 'dist/apps/runner-local/src/drivers/ns-driver.js');
    const args = ['-e', program, module, JSON.stringify(options)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    const sandboxes = join(options.dataDir, 's');
    await until(() => existsSync(sandboxes) && readdirSync(sandboxes).length > 0, {
      everyMs: 1,
      timeoutMs: 60_000,
    });
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await new NsDriver(options).list()).toEqual([]);
    expect(readdirSync(sandboxes)).toEqual([]);
    expect(cgroupsOf(options.cgroupParent)).toEqual([]);
  }, 90_000);

  it('does not take a process with a number used again for the sandbox', async () => {
    const options = nsOptions();
    const driver = new NsDriver(options);
    await driver.create(specOf('a'));
    const record = join(options.dataDir, 's', keyOf(idOf('a')), 'pid');
    const recorded = readFileSync(record, 'utf8');
    const bystander = spawn('sleep', ['1000'], { stdio: 'ignore' });
    writeFileSync(record, recorded.replace(/^\d+/, String(bystander.pid)));
    expect(await driver.probe(idOf('a'))).toMatchObject({ state: 'gone' });
    writeFileSync(record, recorded.replace(/\S+\n$/, 'another-boot\n'));
    expect(await driver.probe(idOf('a'))).toEqual({
      state: 'gone',
      evidence: 'the machine was restarted',
    });
    writeFileSync(record, recorded);
    expect(await driver.probe(idOf('a'))).toEqual({ state: 'running' });
    await driver.destroy(idOf('a'));
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
    bystander.kill('SIGKILL');
  });

  it('holds a command back whose output nobody takes, goes on recording ends, and loses nothing', async () => {
    const driver = new NsDriver({ ...nsOptions(), spoolMiB: 32 });
    await driver.create(specOf('a'));
    const client = await SupervisorClient.connect(await driver.openPipe(idOf('a')), idOf('a'));
    const bytes = 100 * 1024 * 1024;
    const loud = ['sh', '-c', `head -c ${bytes} /dev/zero; echo end`];
    await client.start({ execId: 'loud', argv: loud });
    // Full: it has stopped growing, well below what the command has to say.
    const sizeNow = async () => (await client.state('loud')).stdoutBytes;
    await until(async () => {
      const before = await sizeNow();
      await new Promise((resolve) => setTimeout(resolve, 200));
      return before > 1_000_000 && before === (await sizeNow());
    });
    expect(await sizeNow()).toBeLessThan(40 * 1024 * 1024);
    const quiet = await client.start({ execId: 'quiet', argv: ['sh', '-c', 'exit 3'] });
    expect(quiet.outcome.kind).not.toBe('failed');
    for await (const item of client.read('quiet'))
      if (item.kind === 'end') expect(item.exec.outcome).toEqual({ kind: 'exited', code: 3 });
    let size = 0;
    let acknowledged = 0;
    let last = Buffer.alloc(0);
    for await (const item of client.read('loud')) {
      if (!('data' in item)) continue;
      size += item.data.length;
      last = Buffer.concat([last, item.data]).subarray(-4);
      if (size - acknowledged < 4 * 1024 * 1024) continue;
      await client.acknowledge('loud', size);
      acknowledged = size;
    }
    expect([size, last.toString()]).toEqual([bytes + 4, 'end\n']);
    client.close();
    await driver.destroy(idOf('a'));
  }, 60_000);

  it('makes a sandbox of a root directory, which stays as it is', async () => {
    const root = temporaryDirectory('image');
    for (const name of ['bin', 'etc', 'proc', 'dev', 'sys', 'tmp']) mkdirSync(join(root, name));
    const busy = existsSync('/bin/busybox') ? '/bin/busybox' : undefined;
    const shell = busy ?? '/bin/dash';
    const needed = execFileSync('sh', [
      '-c',
      `ldd ${shell} 2>/dev/null | grep -o "/[^ ]*" || true`,
    ]);
    for (const file of [shell, ...needed.toString().trim().split('\n').filter(Boolean)]) {
      mkdirSync(join(root, file, '..'), { recursive: true });
      execFileSync('cp', ['-L', file, join(root, file)]);
    }
    if (!existsSync(join(root, 'bin/sh'))) symlinkSync(shell, join(root, 'bin/sh'));
    // A hostile image: its mount points lead elsewhere.
    symlinkSync('/etc', join(root, 'run'));
    const driver = new NsDriver({ ...nsOptions(), images: { small: root } });
    await driver.create(specOf('a', { image: 'small' }));
    const client = await SupervisorClient.connect(await driver.openPipe(idOf('a')), idOf('a'));
    const script = 'echo mine > /etc/mine; read line < /etc/hostname; echo "$line"; echo /*';
    await client.start({ execId: 'look', argv: ['/bin/sh', '-c', script] });
    let text = '';
    for await (const item of client.read('look')) if ('data' in item) text += item.data;
    expect(text).toMatch(/^driver-0001\n\/bin \/dev \/etc/);
    expect(text).not.toContain('/home');
    client.close();
    await driver.destroy(idOf('a'));
    expect(existsSync(join(root, 'etc/mine'))).toBe(false);
    expect(existsSync(join(root, 'etc/hostname'))).toBe(false);
    await expect(driver.create(specOf('b', { image: 'other' }))).rejects.toMatchObject({
      reason: 'unsupported',
    });
  });

  it('refuses an image whose mount points are links', async () => {
    const root = temporaryDirectory('image');
    mkdirSync(join(root, 'etc'));
    symlinkSync('/etc', join(root, 'proc'));
    const options = nsOptions();
    const driver = new NsDriver({ ...options, images: { evil: root } });
    await expect(driver.create(specOf('a', { image: 'evil' }))).rejects.toThrow(/proc/);
    expect(await driver.list()).toEqual([]);
    expect(cgroupsOf(options.cgroupParent)).toEqual([]);
  });

  const hasDpkg = existsSync('/usr/bin/dpkg');
  skipUnless(hasDpkg, 'no dpkg here')('installs a package inside and nowhere else', async () => {
    const driver = new NsDriver(nsOptions());
    const inside = await enter(driver);
    const script = `mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin && cd /tmp
      printf 'Package: vmux-trial\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@x>\\nDescription: x\\n' > p/DEBIAN/control
      printf '#!/bin/sh\\necho installed\\n' > p/usr/bin/vmux-trial && chmod 755 p/usr/bin/vmux-trial
      dpkg-deb -b p p.deb >/dev/null && dpkg -i p.deb >/dev/null && vmux-trial && useradd -m someone && su someone -c id`;
    const { text, code } = await inside.sh(script);
    expect([code, text]).toEqual([0, expect.stringMatching(/^installed\nuid=\d+\(someone\)/)]);
    expect(existsSync('/usr/bin/vmux-trial')).toBe(false);
    await driver.destroy(inside.id);
  });

  it('says what to change when its directory has too long a name', async () => {
    const driver = new NsDriver({ ...nsOptions(), dataDir: `/tmp/${'x'.repeat(100)}` });
    await expect(driver.list()).rejects.toMatchObject({ next: 'refuse', reason: 'invalid' });
  });

  it('says that it is not available when its programs are missing', async () => {
    const driver = new NsDriver({ ...nsOptions(), supervisorPath: '/no/such/supervisor' });
    expect(await driver.capabilities()).toMatchObject({
      available: false,
      reason: expect.stringContaining('/no/such/supervisor'),
      offered: [],
    });
  });
});
