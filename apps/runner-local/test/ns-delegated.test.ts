import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import {
  describeUnless,
  releaseAll,
  releaseLater,
  until,
  whenThisProcessDies,
} from '@vmux/testing';
import { RootlessDriver } from './rootless-driver';
import { rootlessOptions, whyNotRootless, withOneId } from './rootless-target';

const line = readFileSync('/proc/self/mountinfo', 'utf8')
  .split('\n')
  .find((each) => each.includes(' - cgroup2 '));
const mount = line?.split(' ')[4];
const why = whyNotRootless(withOneId) || (mount ? '' : 'no control groups of version 2 here');

/** Its last process may still be leaving. */
function removed(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'EBUSY') return false;
    throw fault;
  }
}

/** A group that is theirs, with their processes one below it, so that it can limit what else is below it. */
function delegate(uid: number): string {
  const top = mount ?? '';
  for (const controller of ['memory', 'cpu', 'pids']) {
    const has = readFileSync(join(top, 'cgroup.controllers'), 'utf8').split(/\s+/);
    if (has.includes(controller))
      writeFileSync(join(top, 'cgroup.subtree_control'), `+${controller}`);
  }
  const group = join(top, `vmux-delegated-${process.pid}`);
  const inner = join(group, 'runner');
  mkdirSync(inner, { recursive: true });
  const callOff = whenThisProcessDies('sleep 5; rmdir "$0"/runner "$0"', group);
  releaseLater(async () => {
    await until(() => removed(inner));
    await until(() => removed(group));
    callOff();
  });
  for (const name of ['', 'cgroup.procs', 'cgroup.subtree_control'])
    for (const each of [group, inner]) chownSync(join(each, name), uid, uid);
  return group;
}

describeUnless(why === '', why)(
  'the ns driver without root in a group that is delegated to it',
  () => {
    const id = { sessionId: 'delegated-0001', epoch: 1, instance: 'a' };
    const limits = { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 32 };
    const spec: SandboxSpec = { id, limits, image: null, egress: false, gpu: null };
    let group: string;
    let driver: RootlessDriver;
    let client: SupervisorClient;
    beforeAll(async () => {
      const nobody = withOneId();
      group = delegate(nobody.uid);
      const user = { ...nobody, cgroup: join(group, 'runner') };
      driver = new RootlessDriver(rootlessOptions(user), user);
      await driver.create(spec);
      client = await SupervisorClient.connect(await driver.openPipe(id), id);
    }, 240_000);
    afterAll(async () => {
      client?.close();
      await driver?.close();
      await releaseAll();
    }, 60_000);

    const sandboxGroup = () => {
      const [parent = ''] = readdirSync(group).filter((name) => name.startsWith('vmux-ns-'));
      const [own = ''] = readdirSync(join(group, parent)).filter((name) => name.startsWith('s-'));
      return join(group, parent, own);
    };

    it('misses no limit whose controller it was given, and says which it misses', async () => {
      const given = readFileSync(join(group, 'cgroup.controllers'), 'utf8').split(/\s+/);
      const { offered, missing } = await driver.capabilities();
      expect(offered).toContain('suspend');
      for (const [controller, limit] of [
        ['memory', 'memoryLimit'],
        ['cpu', 'cpuLimit'],
      ] as const) {
        expect(limit in missing).toBe(!given.includes(controller));
        const file = join(sandboxGroup(), controller === 'memory' ? 'memory.max' : 'cpu.max');
        const set = existsSync(file) ? readFileSync(file, 'utf8').trim() : null;
        const wanted = controller === 'memory' ? String(64 * 1024 * 1024) : '100000 100000';
        expect(set).toBe(given.includes(controller) ? wanted : null);
      }
    });

    it('stops time in a sandbox and lets it go on', async () => {
      await client.start({ execId: 'spin', argv: ['sh', '-c', 'while :; do :; done'] });
      await driver.suspend(id);
      expect(await driver.probe(id)).toEqual({ state: 'suspended' });
      expect(readFileSync(join(sandboxGroup(), 'cgroup.events'), 'utf8')).toContain('frozen 1');
      await driver.resume(id);
      expect(await driver.probe(id)).toEqual({ state: 'running' });
      await client.cancel('spin', 0);
      await client.start({ execId: 'after', argv: ['true'] });
    });

    it('ends a command that takes too much memory, where it can limit that', async () => {
      const { missing } = await driver.capabilities();
      if (missing.memoryLimit) return expect(missing.memoryLimit).toContain('delegated');
      await client.start({ execId: 'hog', argv: ['tail', '/dev/zero'] });
      for await (const item of client.read('hog'))
        if (item.kind === 'end')
          expect(item.exec.outcome).toMatchObject({ kind: 'signalled', signal: 9 });
      expect((await client.figures()).oomKills).toBe(1);
      return undefined;
    }, 60_000);

    it('ends a suspended sandbox and leaves no group of it', async () => {
      await driver.suspend(id);
      await driver.destroy(id);
      expect(await driver.probe(id)).toMatchObject({ state: 'gone' });
      expect(readdirSync(group).filter((name) => name.startsWith('vmux-ns-'))).toEqual([]);
    });
  },
);
