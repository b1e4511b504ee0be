// node scripts/vm.mjs <test files and jest arguments>: runs tests as root of a virtual machine whose kernel is
// the distribution's own, with control groups of version 2 alone. It is emulated, so it is slow, and needs
// Linux on x86-64, root, qemu-system-x86_64, apt-get and debootstrap. Nothing of it is left behind.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { build } from './build.mjs';
import { root } from './setup.mjs';

const require = createRequire(import.meta.url);
const SIZE = '8G';
const MEMORY_MIB = 4096;
const KEPT = ['apps', 'libs', 'native', 'scripts', 'test', 'dist', 'node_modules'];
/** What the first process loads so that it sees its disk, and what the driver needs then. */
const EARLY = ['virtio_ring', 'virtio', 'virtio_pci_modern_dev', 'virtio_pci_legacy_dev'];
const MODULES = [...EARLY, 'virtio_pci', 'virtio_blk', 'loop', 'overlay', 'veth'];

/** How long a test may take where everything is emulated. */
const SLOWNESS = 20;

export async function testInVm(args) {
  if (process.platform !== 'linux' || process.arch !== 'x64' || process.getuid() !== 0)
    throw new Error('the virtual machine is made on Linux on x86-64, by root');
  const scratch = mkdtempSync(join(tmpdir(), 'vmux-vm-'));
  const remove = () => rmSync(scratch, { recursive: true, force: true });
  process.once('exit', remove);
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1));
  await build();
  const kernel = unpacked(scratch, kernelPackage());
  const busybox = join(unpacked(scratch, 'busybox-static'), 'bin/busybox');
  const [version] = readdirSync(join(kernel, 'lib/modules'));
  const initrd = join(scratch, 'initrd');
  writeFileSync(initrd, initialFiles(join(kernel, 'lib/modules', version), busybox));
  const disk = join(scratch, 'disk.img');
  makeDisk(disk, scratch, args);
  return boot(join(kernel, `boot/vmlinuz-${version}`), initrd, disk);
}

function kernelPackage() {
  const shown = output('apt-cache', ['depends', 'linux-image-cloud-amd64']);
  const name = /Depends: (linux-image-\S+)/.exec(shown)?.[1];
  if (!name) throw new Error('the distribution names no kernel: apt-get update');
  return name;
}

function unpacked(scratch, name) {
  const into = mkdtempSync(join(scratch, 'package-'));
  run('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', name], { cwd: into });
  const [file] = readdirSync(into);
  run('dpkg-deb', ['-x', file, 'root'], { cwd: into });
  return join(into, 'root');
}

/** A Debian, this tree as it is, and node; in mount namespaces of its own, so that no mount is left. */
function makeDisk(disk, scratch, args) {
  const { debianArchive } = require(join(root, 'dist/libs/testing/src/index.js'));
  const config = `module.exports = { ...require('./jest.config.cjs'), globalSetup: undefined, testTimeout: ${30_000 * SLOWNESS}, setupFilesAfterEnv: ['./jest.slow.cjs'] };`;
  const files = mkdtempSync(join(scratch, 'files-'));
  writeFileSync(join(files, 'jest.vm.cjs'), config);
  writeFileSync(join(files, 'jest.slow.cjs'), SLOW);
  writeFileSync(join(files, 'arguments'), args.map((each) => `${each}\0`).join(''));
  writeFileSync(join(files, 'run'), GUEST, { mode: 0o755 });
  run('truncate', ['-s', SIZE, disk]);
  run('mke2fs', ['-q', '-F', '-t', 'ext4', '-O', '^has_journal', '-m', '0', disk]);
  mkdirSync(join(scratch, 'at'));
  const script = `mount -o loop "$1" "$2" && tar -C "$2" -xf "$3" && mkdir -p "$2/vmux" && cp "$4"/* "$2/vmux" &&
    cp "$5" "$2/usr/bin/node" && cd "$6" && cp *.json *.cjs "$2/vmux" && shift 6 && tar -cf - "$@" | tar -C "$AT/vmux" -xf - && umount "$AT"`;
  const at = join(scratch, 'at');
  const given = [disk, at, debianArchive(), files, process.execPath, root, ...KEPT];
  run('unshare', ['-m', 'sh', '-ec', script, 'sh', ...given], { env: { ...process.env, AT: at } });
}

/** The machine's first process: its disk is the root, and a script on it does the rest. */
function initialFiles(modules, busybox) {
  const all = readdirSync(modules, { recursive: true }).filter((name) => name.endsWith('.ko'));
  const found = MODULES.flatMap((name) => all.filter((path) => basename(path) === `${name}.ko`));
  const loads = found.map((path) => `busybox insmod /${basename(path)}`).join('\n');
  const script = `#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /dev /new
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
${loads}
busybox mount -t ext4 -o noatime,nobarrier /dev/vda /new
busybox cp /bin/busybox /new/usr/bin/busybox
busybox umount /proc
busybox mount --move /dev /new/dev
exec busybox switch_root /new /vmux/run
`;
  const entries = [
    ['bin', 0o40755, Buffer.alloc(0)],
    ['bin/busybox', 0o100755, readFileSync(busybox)],
    ['init', 0o100755, Buffer.from(script)],
    ...found.map((path) => [basename(path), 0o100644, readFileSync(join(modules, path))]),
    ['TRAILER!!!', 0, Buffer.alloc(0)],
  ];
  return Buffer.concat(entries.map(([name, mode, data], index) => cpio(name, mode, data, index)));
}

/** One entry of the archive form that the kernel reads. */
function cpio(name, mode, data, index) {
  const fields = [index + 1, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, name.length + 1, 0];
  const numbers = fields.map((field) => field.toString(16).padStart(8, '0')).join('');
  const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
  return Buffer.concat([padded(Buffer.from(`070701${numbers}${name}\0`)), padded(data)]);
}

/** Tests that say how long they may take may take that much longer. */
const SLOW = `for (const name of ['it', 'beforeAll', 'afterAll']) {
  const plain = global[name];
  const last = name === 'it' ? 2 : 1;
  const slow = (...args) => {
    if (args[last] !== undefined) args[last] *= ${SLOWNESS};
    return plain(...args);
  };
  global[name] = Object.assign(slow, plain);
}
`;

const GUEST = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
busybox ip link set lo up
hostname vm
cd /vmux
echo "vmux-vm: $(uname -r), $(cat /sys/fs/cgroup/cgroup.controllers)"
xargs -0 -a arguments node node_modules/jest/bin/jest.js --config jest.vm.cjs --runInBand --colors=false 2>&1
echo "vmux-vm-exit: $?"
busybox poweroff -f
`;

async function boot(kernel, initrd, disk) {
  const machine = [
    '-accel',
    'tcg,thread=multi',
    '-cpu',
    'max',
    '-smp',
    '2',
    '-m',
    String(MEMORY_MIB),
  ];
  const plain = ['-nodefaults', '-display', 'none', '-no-reboot', '-serial', 'stdio'];
  const start = ['-kernel', kernel, '-initrd', initrd, '-append', 'console=ttyS0 quiet panic=-1'];
  const drive = ['-drive', `file=${disk},format=raw,if=virtio,cache=unsafe`];
  const args = [...machine, ...plain, ...start, ...drive];
  const child = spawn('qemu-system-x86_64', args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const stop = () => child.kill('SIGKILL');
  process.once('exit', stop);
  let status = 1;
  for await (const line of createInterface({ input: child.stdout })) {
    const said = /^vmux-vm-exit: (\d+)/.exec(line);
    if (said) status = Number(said[1]);
    else console.log(line);
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  process.off('exit', stop);
  return status;
}

function run(program, args, options = {}) {
  const done = spawnSync(program, args, { stdio: ['ignore', 'inherit', 'inherit'], ...options });
  if (done.status !== 0)
    throw new Error(`${program} ended with ${done.error?.message ?? done.signal ?? done.status}`);
}

function output(program, args) {
  const done = spawnSync(program, args, { encoding: 'utf8' });
  if (done.status !== 0)
    throw new Error(`${program} failed: ${done.error?.message ?? done.stderr}`);
  return done.stdout;
}

if (process.argv[1] === new URL(import.meta.url).pathname)
  process.exit(await testInVm(process.argv.slice(2)));
