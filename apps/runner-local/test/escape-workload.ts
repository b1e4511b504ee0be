import { spawn } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { SandboxDriver } from '@vmux/runner-kit';
import { releaseAll, releaseLater } from '@vmux/testing';
import {
  CANARY_PLACES,
  type Canaries,
  type EscapeTarget,
  enter,
  type Group,
  type Inside,
  plantCanaries,
} from './escape-tools';

/** Somebody hostile is root of a sandbox; `open` says how it is made. */
export function hostileWorkload(title: string, open: () => EscapeTarget, group: Group): void {
  group(title, () => {
    let target: EscapeTarget;
    let driver: SandboxDriver;
    let early: Canaries;
    let late: Canaries;
    let inside: Inside;
    let other: Inside;

    beforeAll(async () => {
      target = open();
      driver = target.driver;
      const { options, canaryOwner } = target;
      mkdirSync(join(options.dataDir, 's'), { recursive: true, mode: 0o700 });
      chownSync(join(options.dataDir, 's'), canaryOwner, canaryOwner);
      const places = [...CANARY_PLACES.filter((place) => existsSync(place)), options.dataDir];
      early = plantCanaries([...places, join(options.dataDir, 's')], canaryOwner);
      other = await enter(driver);
      // Between the driver's start and a sandbox's: these are hidden by the allow-list alone.
      late = plantCanaries(
        places.filter((place) => !/^\/(usr|var\/lib)\/./.test(place)),
        canaryOwner,
      );
      inside = await enter(driver);
    }, 240_000);

    afterAll(async () => {
      for (const sandbox of [inside, other]) if (sandbox) await driver.destroy(sandbox.id);
      await releaseAll();
    });

    it('finds no file that only the host may read, by path, by name or by content', async () => {
      for (const { paths, mark, secret } of [early, late]) {
        expect(paths.every((path) => statSync(path).size > 0)).toBe(true);
        for (const path of paths) {
          const seen = await inside.sh(`cat '${path}' || ls -d '${path}'`);
          expect([path, seen.code, seen.text.includes(secret)]).toEqual([path, 2, false]);
        }
        const byName = await inside.sh(`find / -path /proc -prune -o -name '*${mark}*' -print`);
        expect(byName.text.replace(/^find: .*\n/gm, '')).toBe('');
        const trees = '/etc /root /home /tmp /var /opt /srv /run /mnt /media /boot /dev/shm';
        const byContent = await inside.sh(`grep -rsl '${secret}' ${trees}`);
        expect(byContent).toEqual({ text: '', code: 1 });
        for (const path of paths) {
          await expect(inside.client.files.stat(path)).rejects.toMatchObject({ errno: 2 });
          const link = await inside.sh(`ln -sfn '/proc/1/root${path}' /tmp/link; cat /tmp/link`);
          expect(link.code).not.toBe(0);
        }
      }
    }, 120_000);

    it('sees nothing at the top of the tree that was not put there', async () => {
      const shown = (await inside.sh('ls -A /')).text.trim().split('\n');
      const allowed =
        'bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var workspace';
      expect(shown.filter((name) => !allowed.split(' ').includes(name))).toEqual([]);
      const empty = 'boot home media mnt opt srv';
      expect((await inside.sh(`cd / && find ${empty} -mindepth 1`)).text).toBe('');
      const own = await inside.sh(`ls -d ${target.options.dataDir} ${process.cwd()} /work 2>&1`);
      expect(own.text.match(/No such file/g)).toHaveLength(3);
      expect((await inside.sh('cat /proc/self/mountinfo')).text).not.toContain(
        target.options.dataDir,
      );
    });

    it('has no secrets of the host in its /etc', async () => {
      const shadow = (await inside.sh('cat /etc/shadow')).text;
      expect(shadow.split('\n').filter((line) => line && !line.includes(':*:'))).toEqual([]);
      const absent =
        '/etc/ssh /etc/ssl/private /etc/npmrc /etc/pip.conf /etc/sudoers /etc/apt/auth.conf';
      const found = await inside.sh(`ls -d ${absent} /etc/apt/auth.conf.d 2>/dev/null`);
      expect(found.text).toBe('');
    });

    it('writes everywhere and changes nothing outside', async () => {
      const name = `vmux-written-${inside.id.instance}`;
      const places = [
        '/',
        '/usr/bin',
        '/usr/lib',
        '/etc',
        '/var/lib/dpkg',
        '/tmp',
        '/root',
        '/opt',
        '/../../..',
      ];
      const script = places.map((place) => `echo x > ${place}/${name} || exit 9`).join('; ');
      expect(await inside.sh(script)).toEqual({ text: '', code: 0 });
      for (const place of places) expect(existsSync(join(place, name))).toBe(false);
      const before = readFileSync('/usr/bin/env');
      // A file that is nobody's may be replaced alone.
      const anew = target.isRootless ? 'rm /usr/bin/env; ' : '';
      const breaking = `${anew}echo broken > /usr/bin/env`;
      expect((await inside.sh(`${breaking}; rm -rf /usr/share/doc; cat /usr/bin/env`)).text).toBe(
        'broken\n',
      );
      expect(readFileSync('/usr/bin/env').equals(before)).toBe(true);
      expect(readdirSync('/usr/share')).toContain('doc');
      expect((await other.sh('env true; ls /usr/share/doc | head -1')).text).not.toBe('');
      expect((await other.sh(`ls /tmp/${name}`)).code).toBe(2);
    });

    it('sees and signals no process of the host or of another sandbox', async () => {
      const witness = spawn('sleep', ['54321'], { stdio: 'ignore' });
      releaseLater(() => void witness.kill('SIGKILL'));
      await other.client.start({ execId: 'e-witness', argv: ['sleep', '65432'] });
      const seen = await inside.sh(
        'cat /proc/[0-9]*/cmdline | tr "\\0" " "; ls -d /proc/[0-9]* | wc -l',
      );
      expect(seen.text).not.toMatch(/54321|65432/);
      expect((await inside.sh(`kill -9 ${witness.pid}`)).code).not.toBe(0);
      await inside.sh('kill -9 -1');
      expect((await inside.sh('kill -9 1; kill -STOP 1; echo alive')).text).toContain('alive');
      expect(witness.exitCode).toBeNull();
      expect(witness.signalCode).toBeNull();
      expect((await other.client.state('e-witness')).outcome.kind).toBe('running');
      expect((await inside.sh('renice -n -5 -p 1')).code).not.toBe(0);
    });

    it.each([
      'cat /proc/1/environ',
      'cat /proc/1/maps',
      'cat /proc/1/stack',
      'cat /proc/1/syscall',
      'cat /proc/1/auxv',
      'dd if=/proc/1/mem bs=1 count=1',
      'ls -A /proc/1/fd/ | grep .',
      'ls -A /proc/1/map_files/ | grep .',
      'ls /proc/1/root/',
      'ls /proc/1/cwd/',
      'cat /proc/1/exe',
      'readlink /proc/1/ns/mnt',
      'echo 0 > /proc/1/fd/4/x',
      'echo -1000 > /proc/1/oom_score_adj',
      'echo x > /proc/1/comm && [ "$(cat /proc/1/comm)" = x ]',
      'nsenter -t 1 -m true',
      'gdb -p 1 -batch -ex quit 2>&1 | grep -q "^0x"',
    ])('gets nothing of the supervisor by: %s', async (script) => {
      const { text, code } = await inside.sh(script);
      expect(code).not.toBe(0);
      expect(text).not.toContain('vmux');
    });

    it('inherits no descriptor of the supervisor or of the launcher', async () => {
      const { text } = await inside.sh('ls /proc/self/fd | tr "\\n" " "; readlink /proc/$$/fd/*');
      expect(text.split('\n')[0]).toMatch(/^0 1 2 3 /);
      expect(text).not.toMatch(/socket:|spool|supervisor/);
    });

    it('reaches no service of the host: loopback, abstract sockets, the hypervisor', async () => {
      const server = createServer((socket) => socket.end('host'));
      await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
      const abstract = createServer((socket) => socket.end('host'));
      const name = `vmux-${inside.id.instance}`;
      await new Promise<void>((resolve) => void abstract.listen(`\0${name}`, resolve));
      releaseLater(() => void server.close());
      releaseLater(() => void abstract.close());
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('no port');
      const dial = (target: string) =>
        inside.sh(
          `perl -MIO::Socket::INET -MIO::Socket::UNIX -e '$s = ${target} or exit 7; print <$s>'`,
        );
      const tcp = `IO::Socket::INET->new("127.0.0.1:${address.port}")`;
      expect(await dial(tcp)).toEqual({ text: '', code: 7 });
      expect(await dial(`IO::Socket::UNIX->new("\\0${name}")`)).toEqual({ text: '', code: 7 });
      const outside = 'IO::Socket::INET->new(PeerAddr => "192.0.2.1:80", Timeout => 5)';
      expect((await dial(outside)).code).toBe(7);
      expect((await inside.sh('ip -o link | wc -l')).text.trim()).toBe('1');
      await expect(inside.client.dial(address.port)).rejects.toMatchObject({ reason: 'system' });
      for (const family of [17, 38, 40, 9, 29, 31, 44])
        expect(await inside.call([41, 198], family, 3, 0)).toBe('EAFNOSUPPORT');
      expect(await inside.call([41, 198], 2, 3, 1)).toMatch(/EPERM|EACCES/);
    });

    it.each([
      'echo 1 > /proc/sysrq-trigger',
      'echo b > /proc/sysrq-trigger',
      'echo "|/tmp/x" > /proc/sys/kernel/core_pattern',
      'echo /tmp/x > /proc/sys/kernel/modprobe',
      'echo x > /proc/sys/kernel/hostname',
      'echo 1 > /proc/sys/net/ipv4/ip_forward',
      'echo 1 > /proc/sys/vm/drop_caches',
      'echo 0 > /proc/sys/kernel/yama/ptrace_scope',
      'mount -o remount,rw /proc/sys',
      'umount /proc/sys',
      'umount -l /usr',
      'mount --bind / /mnt',
      'mount -t proc proc /mnt',
      'mount -t overlay o -o lowerdir=/usr,upperdir=/tmp,workdir=/var/tmp /mnt',
      'head -c 1 /proc/kcore | grep -q .',
      'head -c 1 /proc/kallsyms | grep -q .',
      'head -c 1 /proc/keys | grep -q .',
      'dmesg',
      'echo 99999999999 > /sys/fs/cgroup/memory/memory.limit_in_bytes',
      'echo max > /sys/fs/cgroup/memory.max',
      'mkdir /sys/fs/cgroup/pids/x',
      'mkdir /sys/fs/cgroup/unified/x',
      'echo 0 > /sys/devices/system/cpu/cpu1/online',
      'ls /sys | grep -E "^(firmware|block|bus|module|kernel|power)$"',
      'mknod /tmp/mem c 1 1',
      'mknod /tmp/disk b 7 0',
      'cat /dev/mem',
      'cat /dev/kmsg',
      'ls /dev | grep -vxE "fd|full|null|ptmx|pts|random|shm|std(in|out|err)|tty|urandom|zero"',
      'chmod 0600 /dev/null',
      'hostname other',
      'date -s 2001-01-01',
      'chroot /proc/1/root true',
      'unshare -U true',
      'unshare -m true',
      'nsenter -t $$ -m true',
      'modprobe loop',
      'swapon /tmp/x',
      'ip link add v0 type veth',
      'ip link set lo mtu 1000',
    ])('is refused: %s', async (script) => {
      expect((await inside.sh(script)).code).not.toBe(0);
    });

    it('gains nothing by a setuid program', async () => {
      const script =
        'cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && setpriv --reuid 65534 --regid 65534 --clear-groups /tmp/id -u';
      const { text } = await inside.sh(script);
      if (target.hasOneId) expect(text).toContain('Invalid argument');
      else expect(text).toBe('65534\n');
    });

    it('leaves the sandbox, the supervisor and the other sandbox as they were', async () => {
      expect((await inside.sh('echo well')).text).toBe('well\n');
      expect((await other.sh('echo well')).text).toBe('well\n');
      for (const { id } of [inside, other])
        expect(await driver.probe(id)).toEqual({ state: 'running' });
    });
  });
}
