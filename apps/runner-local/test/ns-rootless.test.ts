import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeUnless, releaseAll, releaseLater, skipUnless } from '@vmux/testing';
import type { NsDriverOptions } from '../src/drivers/ns-driver';
import { enter, type Inside } from './escape-tools';
import { firstProcessOf } from './ns-target';
import { RootlessDriver } from './rootless-driver';
import {
  hasIdTools,
  type OtherUser,
  rootlessOptions,
  whyNotRootless,
  withLentIds,
  withOneId,
} from './rootless-target';

const why = whyNotRootless(withOneId);

/** Deeper than a path may be long, not to be entered, and of more ids than one where there are more. */
const STUBBORN = `cd /tmp; for i in $(seq 1500); do mkdir deep-directory; cd deep-directory; done; echo x > leaf
cd /tmp; mkdir -p shut/in; chmod 0 shut/in shut; chown 1234:4321 deep-directory 2>/dev/null
mkdir /usr/share/own; rm -r /usr/share/doc; chattr +i /tmp/shut 2>/dev/null; echo made`;

describeUnless(why === '', why)('the ns driver without root', () => {
  const made: { options: NsDriverOptions; driver: RootlessDriver }[] = [];
  const open = (user: OtherUser) => {
    const options = rootlessOptions(user);
    const driver = new RootlessDriver(options, user);
    made.push({ options, driver });
    return { options, driver };
  };
  afterAll(releaseAll);

  describe('with a single id', () => {
    const { options, driver } = why === '' ? open(withOneId()) : { options: null, driver: null };
    let inside: Inside;
    beforeAll(async () => {
      if (driver) inside = await enter(driver);
    }, 240_000);

    it('says what it cannot do', async () => {
      const { available, offered, missing } = await (driver as RootlessDriver).capabilities();
      expect([available, offered]).toEqual([true, ['pty', 'previews']]);
      const limits = ['memoryLimit', 'cpuLimit', 'diskLimit'];
      const absent = [
        'suspend',
        'checkpoint',
        'fork',
        'memorySnapshot',
        'egress',
        'gpu',
        ...limits,
      ];
      expect(Object.keys(missing)).toEqual(expect.arrayContaining(absent));
      expect(missing).toMatchObject({ memoryLimit: expect.stringContaining('control group') });
      expect(missing).not.toHaveProperty('pidsLimit');
    });

    it('refuses a network and a disk of a certain size before anything is made', async () => {
      const id = { sessionId: 'rootless-0001', epoch: 1, instance: 'refused' };
      const limits = { cpus: 1, memoryMiB: 128, diskMiB: 64, pids: 64 };
      const spec = { id, limits, image: null, egress: false, gpu: null };
      for (const more of [{ egress: true }, { needsDiskLimit: true }])
        await expect(driver?.create({ ...spec, ...more })).rejects.toMatchObject({
          reason: 'unsupported',
          message: expect.stringContaining('without root'),
        });
      expect(await driver?.probe(id)).toMatchObject({ state: 'gone' });
    });

    it('maps the runner’s own user to root of the sandbox, and nobody else', async () => {
      const pid = firstProcessOf(options as NsDriverOptions, inside.id);
      const map = readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim().split(/\s+/);
      expect(map).toEqual(['0', '65534', '1']);
      expect((await inside.sh('id -u; stat -c %u /usr/bin/env')).text).toBe('0\n65534\n');
    });

    it('counts the processes of one sandbox, not those of its neighbours', async () => {
      const spec = { cpus: 1, memoryMiB: 128, diskMiB: 64 };
      const id = { sessionId: 'rootless-0002', epoch: 1, instance: 'few' };
      const limits = { ...spec, pids: 8 };
      await driver?.create({ id, limits, image: null, egress: false, gpu: null });
      const many =
        'for i in $(seq 30); do sleep 1000 & all="$all $!"; done; echo $all | wc -w; kill $all';
      const { text } = await inside.sh(many);
      await driver?.destroy(id);
      expect(text).toBe('30\n');
    });

    it('does not take for its own what comes to be on the host and it may not read', async () => {
      const name = `.vmux-later-${process.pid}`;
      const planted = join('/usr', name);
      releaseLater(() => rmSync(planted, { force: true }));
      writeFileSync(planted, 'the host’s', { mode: 0o600 });
      await inside.sh('echo own > /usr/own');
      const scan = await inside.client.trees.scan([]);
      const paths: string[] = [];
      for await (const some of scan.entries) paths.push(...some.map(({ path }) => path));
      expect(paths).toContain('usr/own');
      expect(paths).not.toContain(`usr/${name}`);
    }, 60_000);

    it('removes what is too deep to be opened and what may not be entered', async () => {
      expect((await inside.sh(STUBBORN)).text).toContain('made');
      await driver?.destroy(inside.id);
      expect(readdirSync(join((options as NsDriverOptions).dataDir, 's'))).toEqual([]);
    }, 120_000);
  });

  describeUnless(hasIdTools, 'newuidmap is not installed')('with ids that are lent to it', () => {
    const { options, driver } =
      why === '' && hasIdTools ? open(withLentIds()) : { options: null, driver: null };
    let inside: Inside;
    beforeAll(async () => {
      if (driver) inside = await enter(driver);
    }, 240_000);

    it('gives the sandbox those ids and keeps its own user out of it', async () => {
      const pid = firstProcessOf(options as NsDriverOptions, inside.id);
      const map = readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim().split(/\s+/);
      expect(map).toEqual(['0', String(0x2000_0000), '65536']);
      await inside.sh('echo x > /tmp/mine; chown 7:8 /tmp/mine');
      const disk = join((options as NsDriverOptions).dataDir, 's');
      const [key = ''] = readdirSync(disk);
      const { uid, gid } = statSync(join(disk, key, 'disk/0/upper/tmp/mine'));
      expect([uid, gid]).toEqual([0x2000_0007, 0x2000_0008]);
    });

    skipUnless(existsSync('/usr/bin/dpkg'), 'no dpkg here')(
      'installs a package inside and nowhere else, and lets somebody else be logged in',
      async () => {
        const script = `mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin && cd /tmp
          printf 'Package: vmux-trial\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@x>\\nDescription: x\\n' > p/DEBIAN/control
          printf '#!/bin/sh\\necho installed\\n' > p/usr/bin/vmux-trial && chmod 755 p/usr/bin/vmux-trial
          dpkg-deb -b p p.deb >/dev/null && dpkg -i p.deb >/dev/null && vmux-trial && useradd -m someone && su someone -c id`;
        const { text, code } = await inside.sh(script);
        expect([code, text]).toEqual([0, expect.stringMatching(/^installed\nuid=\d+\(someone\)/)]);
        expect(existsSync('/usr/bin/vmux-trial')).toBe(false);
      },
      60_000,
    );

    it('removes what belongs to any of them, and the layers that nobody uses any more', async () => {
      expect((await inside.sh(STUBBORN)).text).toContain('made');
      await driver?.destroy(inside.id);
      await driver?.close();
      const { dataDir } = options as NsDriverOptions;
      expect(readdirSync(join(dataDir, 's'))).toEqual([]);
      const [before] = readdirSync(join(dataDir, 'base'));
      const next = new RootlessDriver(options as NsDriverOptions, withLentIds());
      expect(await next.list()).toEqual([]);
      expect(readdirSync(join(dataDir, 'base'))).not.toContain(before);
      await next.close();
    }, 240_000);
  });
});
