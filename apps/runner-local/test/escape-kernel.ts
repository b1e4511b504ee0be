import { releaseAll } from '@vmux/testing';
import {
  type EscapeTarget,
  enter,
  type Group,
  type Inside,
  REFUSED,
  type SystemCall,
  type TarEntry,
  tarOf,
} from './escape-tools';

/** By name, number on x86-64 and on arm64, and arguments that would do something if it were allowed. */
const CALLS: [name: string, numbers: SystemCall, ...args: (number | string)[]][] = [
  ['mount', [165, 40], 'none', '/mnt', 'tmpfs', 0, 0],
  ['umount2', [166, 39], '/proc', 2],
  ['pivot_root', [155, 41], '/', '/mnt'],
  ['open_tree', [428, 428], -100, '/', 1],
  ['move_mount', [429, 429], -100, '/usr', -100, '/mnt', 0],
  ['fsopen', [430, 430], 'tmpfs', 0],
  ['fsconfig', [431, 431], 0, 6, 0, 0, 0],
  ['fsmount', [432, 432], 0, 0, 0],
  ['fspick', [433, 433], -100, '/', 0],
  ['mount_setattr', [442, 442], -100, '/', 0, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 32],
  ['open_by_handle_at', [304, 265], 3, 'xxxxxxxxxxxxxxxx', 0],
  ['unshare', [272, 97], 0x10000000],
  ['setns', [308, 268], 0, 0],
  ['clone3', [435, 435], 'xxxxxxxxxxxxxxxx', 16],
  ['ptrace (traceme)', [101, 117], 0, 0, 0, 0],
  ['ptrace (attach to the supervisor)', [101, 117], 16, 1, 0, 0],
  ['ptrace (seize the supervisor)', [101, 117], 0x4206, 1, 0, 0],
  ['process_vm_readv', [310, 270], 1, 0, 0, 0, 0, 0],
  ['process_vm_writev', [311, 271], 1, 0, 0, 0, 0, 0],
  ['kcmp', [312, 272], 1, 1, 0, 0, 0],
  ['pidfd_getfd', [438, 438], 3, 0, 0],
  ['init_module', [175, 105], 'x', 1, ''],
  ['finit_module', [313, 273], 0, '', 0],
  ['delete_module', [176, 106], 'loop', 0],
  ['kexec_load', [246, 104], 0, 0, 0, 0],
  ['bpf', [321, 280], 0, 0, 0],
  ['perf_event_open', [298, 241], 0, 0, -1, -1, 0],
  ['userfaultfd', [323, 282], 0],
  ['io_uring_setup', [425, 425], 1, 0],
  ['io_uring_enter', [426, 426], 0, 0, 0, 0, 0],
  ['keyctl', [250, 219], 0, -3, 0],
  ['add_key', [248, 217], 'user', 'x', 'x', 1, -2],
  ['request_key', [249, 218], 'user', 'x', 0, 0],
  ['reboot', [169, 142], 0xfee1dead, 672274793, 0x01234567, 0],
  ['acct', [163, 89], '/tmp/acct'],
  ['syslog', [103, 116], 3, 'xxxx', 4],
  ['settimeofday', [164, 170], 0, 0],
  ['clock_settime', [227, 112], 0, 'xxxxxxxxxxxxxxxx'],
  ['swapon', [167, 224], '/tmp/x', 0],
  ['quotactl', [179, 60], 0, 0, 0, 0],
  ['fanotify_init', [300, 262], 0, 0],
  ['sethostname', [170, 161], 'x', 1],
  ['memfd_secret', [447, 447], 0],
];

/** The same, below the C library. */
export function hostileCalls(title: string, open: () => EscapeTarget, group: Group): void {
  group(title, () => {
    let target: EscapeTarget;
    let inside: Inside;
    beforeAll(async () => {
      target = open();
      inside = await enter(target.driver);
    }, 240_000);
    afterAll(async () => {
      if (inside) await target.driver.destroy(inside.id);
      await releaseAll();
    });

    it.each(CALLS)('is refused %s', async (_name, numbers, ...args) => {
      expect(await inside.call(numbers, ...args)).toMatch(REFUSED);
    });

    it('may make processes and threads, but no namespaces', async () => {
      const namespaces = {
        mount: 0x20000,
        cgroup: 0x2000000,
        uts: 0x4000000,
        ipc: 0x8000000,
        user: 0x10000000,
        pid: 0x20000000,
        net: 0x40000000,
      };
      for (const [name, flag] of Object.entries(namespaces))
        expect([name, await inside.call([56, 220], flag + 17, 0, 0, 0, 0)]).toEqual([
          name,
          'EPERM',
        ]);
      expect((await inside.sh('echo a | cat | cat')).text).toBe('a\n');
    });

    it('cannot go round the filter by another numbering of the calls', async () => {
      if (process.arch !== 'x64') return;
      expect(await inside.call([0x40000000 + 39, 0])).toBe('ENOSYS');
      expect(await inside.call([0x40000000 + 165, 0], 'none', '/mnt', 'tmpfs', 0, 0)).toBe(
        'ENOSYS',
      );
    });

    it('cannot type into a terminal by ioctl', async () => {
      expect(await inside.call([16, 29], 0, 0x5412, 'x')).toMatch(REFUSED);
      expect(await inside.call([16, 29], 0, 0x541c, 'x')).toMatch(REFUSED);
    });

    it('cannot make the overlay show other files by its attributes', async () => {
      await inside.sh('mkdir -p /tmp/redirected /tmp/opaque; touch /tmp/opaque/x');
      const set = [188, 5] as const;
      await inside.call(set, '/tmp/redirected', 'user.overlay.redirect', '/usr', 4, 0);
      await inside.call(set, '/tmp/redirected', 'user.overlay.origin', 'xxxxxxxx', 8, 0);
      expect(
        await inside.call(set, '/tmp/redirected', 'trusted.overlay.redirect', '/usr', 4, 0),
      ).toMatch(/EPERM|EOPNOTSUPP/);
      const seen = await inside.sh('echo 3 > /dev/null; ls -A /tmp/redirected; ls /tmp/opaque');
      expect(seen.text).toBe('x\n');
    });

    it.each<[string, TarEntry]>([
      ['a file above its directory', { name: '../../etc/escaped' }],
      ['a file behind a link that leads out', { name: 'out/escaped' }],
      ['a device', { name: 'device', type: '3' }],
      ['a block device', { name: 'block', type: '4' }],
      ['a hard link to a file outside', { name: 'hard', type: '1', link: '../../../etc/shadow' }],
    ])('cannot unpack %s', async (_title, entry) => {
      await inside.sh('rm -rf /tmp/into; mkdir -p /tmp/into; ln -s /etc /tmp/into/out');
      const unpacked = inside.client.files.tarIn('/tmp/into', [tarOf(entry)]);
      await expect(unpacked).rejects.toMatchObject({ reason: 'unsafe' });
      expect((await inside.sh('ls /etc/escaped /tmp/into/device /tmp/into/block')).code).toBe(2);
    });

    it('unpacks a leading slash beneath the directory, and setuid files without setuid', async () => {
      await inside.client.files.tarIn('/tmp/under', [
        tarOf({ name: '/etc/beneath', mode: 0o4755 }),
      ]);
      const { text } = await inside.sh('stat -c %a /tmp/under/etc/beneath; ls /etc/beneath');
      expect(text).toMatch(/^755\n.*No such file/);
    });

    it('is followed by no link of the file calls into the supervisor', async () => {
      await inside.sh('ln -sfn /proc/1/root /tmp/root; ln -sfn /proc/self/root /tmp/self');
      for (const path of ['/tmp/root/etc/passwd', '/tmp/self/etc/passwd', '/proc/1/environ']) {
        const read = inside.client.files.read(path).next();
        await expect(read).rejects.toMatchObject({ code: 'supervisor_refused' });
      }
    });

    it('holds the capabilities it is meant to, no more, and can get no others', async () => {
      const { text } = await inside.sh('grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status');
      const found = Object.fromEntries(
        text
          .trim()
          .split('\n')
          .map((line) => line.split(/:\s+/)),
      );
      // chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap
      const kept = '00000000800405fb';
      expect(found).toMatchObject({ CapBnd: kept, CapAmb: '0000000000000000' });
      expect(found).toMatchObject({ NoNewPrivs: '1', Seccomp: '2' });
      expect(BigInt(`0x${found.CapEff}`) & ~BigInt(`0x${kept}`)).toBe(0n);
    });
  });
}
