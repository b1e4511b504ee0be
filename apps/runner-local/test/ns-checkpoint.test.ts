import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type SandboxId, type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import { NsDriver } from '../src/drivers/ns-driver';
import { keyOf } from '../src/drivers/ns-store';
import { isRoot, nsOptions } from './ns-target';

const noBtrfs = spawnSync('mkfs.btrfs', ['--version']).status === 0 ? '' : 'no mkfs.btrfs';

const specOf = (instance: string): SandboxSpec => ({
  id: { sessionId: 'disk-0001', epoch: 1, instance },
  limits: { cpus: 1, memoryMiB: 256, diskMiB: 256, pids: 64 },
  image: null,
  egress: false,
  gpu: null,
});

describeUnless(isRoot && !noBtrfs, noBtrfs || 'needs root')('checkpoints of the ns driver', () => {
  const options = nsOptions();
  const driver = new NsDriver(options);
  const clients: SupervisorClient[] = [];
  const made: SandboxId[] = [];
  let number = 0;
  afterAll(async () => {
    for (const client of clients) client.close();
    for (const id of made) await driver.destroy(id);
    await driver.close();
    expect(readFileSync('/proc/self/mountinfo', 'utf8')).not.toContain(options.dataDir);
    await releaseAll();
  }, 60_000);

  const opened = async (create: (spec: SandboxSpec) => Promise<void>) => {
    const spec = specOf(`i${number++}`);
    await create(spec);
    made.push(spec.id);
    const client = await SupervisorClient.connect(await driver.openPipe(spec.id), spec.id);
    clients.push(client);
    return { id: spec.id, client, run: (line: string) => run(client, line) };
  };
  const created = () => opened((spec) => driver.create(spec));
  const run = async (client: SupervisorClient, line: string): Promise<string> => {
    const execId = `e${String(number++).padStart(12, '0')}`;
    await client.start({ execId, argv: ['/bin/sh', '-c', line], env: {}, cwd: '/', stdin: false });
    let text = '';
    for await (const item of client.read(execId)) {
      if ('data' in item) text += item.data;
      if (item.kind === 'end' && item.exec.outcome.kind === 'exited' && item.exec.outcome.code > 0)
        throw new Error(`${line}: ${item.exec.outcome.code} ${text}`);
    }
    return text;
  };
  const TREE =
    'cd /workspace && find . -type f | sort | xargs sha256sum; find . -printf "%p %m %U %G %y %l\\n" | sort; ls /usr/games | wc -l; cat /etc/motd';
  const FILL = `mkdir -p /workspace && cd /workspace && mkdir -p a/b && head -c 30000000 /dev/urandom > a/big && ln a/big a/b/same && ln -s ../a b-link && chmod 640 a/big && chown 7:8 a && echo changed > /etc/motd`;

  it('let go on what stands still for a taker that was killed, and not what was suspended', async () => {
    const [half, rests] = [await created(), await created()];
    await driver.suspend(half.id);
    await driver.suspend(rests.id);
    // As a runner leaves it that is killed between freezing and thawing: a process that is no more.
    const directory = join(options.dataDir, 's', keyOf(half.id));
    writeFileSync(join(directory, 'still'), '1:1:of-another-boot');
    const next = new NsDriver(options);
    await next.list();
    expect(await driver.probe(half.id)).toEqual({ state: 'running' });
    expect(await half.run('echo goes on')).toBe('goes on\n');
    expect(await driver.probe(rests.id)).toEqual({ state: 'suspended' });
    await driver.resume(rests.id);
  }, 90_000);

  it('that are given up at any moment leave their sandbox running, and nothing that counts as one', async () => {
    const sandbox = await created();
    await sandbox.run(FILL);
    let givenUp = 0;
    for (let afterMs = 0; afterMs < 40; afterMs += 4) {
      await sandbox.run('head -c 3000000 /dev/urandom > /workspace/changed');
      const name = `given-up-${afterMs}`;
      const signal = AbortSignal.timeout(afterMs);
      const taken = await driver.checkpoint(sandbox.id, { name, signal }).then(
        ({ ref }) => ref,
        () => null,
      );
      if (taken === null) givenUp += 1;
      expect(await driver.probe(sandbox.id)).toEqual({ state: 'running' });
      expect(await sandbox.run('echo goes on')).toBe('goes on\n');
      expect(readdirSync(join(options.dataDir, 's', keyOf(sandbox.id)))).not.toContain('still');
    }
    expect(givenUp).toBeGreaterThan(0);
    const kept = await driver.checkpoint(sandbox.id, { name: 'given-up-0' });
    const next = await opened((spec) => driver.restore(spec, kept));
    expect(await next.run(TREE)).toBe(await sandbox.run(TREE));
  }, 120_000);

  it('restore the same tree, twice, and leave the first as it goes on', async () => {
    const first = await created();
    await first.run(FILL);
    await first.run('rm -f /etc/issue; sleep 1000 >/dev/null 2>&1 & echo $! > /workspace/pid');
    const before = await first.run(TREE);
    const kept = await driver.checkpoint(first.id);
    expect(await driver.probe(first.id)).toEqual({ state: 'running' });
    await first.run('echo later > /workspace/later; rm /workspace/a/big');
    expect(await first.run('kill -0 $(cat /workspace/pid) && echo alive')).toBe('alive\n');

    for (let time = 0; time < 2; time++) {
      const next = await opened((spec) => driver.restore(spec, kept));
      expect(await next.run(TREE)).toBe(before);
      expect(await next.run('ls /etc/issue 2>/dev/null | wc -l')).toBe('0\n');
      await next.run('rm -r /workspace/a');
    }
    expect(await first.run('cat /workspace/later')).toBe('later\n');
  }, 90_000);

  it('leave what is suspended suspended, and are consistent under writing', async () => {
    const first = await created();
    const write =
      'mkdir -p /workspace; i=0; while :; do i=$((i+1)); echo $i > /workspace/new && mv /workspace/new /workspace/n; done';
    await first.client.start({
      execId: 'e999999999999',
      argv: ['/bin/sh', '-c', write],
      env: {},
      cwd: '/',
      stdin: false,
    });
    await until(async () => (await first.run('ls /workspace')).includes('n'));
    for (let time = 0; time < 5; time++) {
      const kept = await driver.checkpoint(first.id);
      const copy = await opened((spec) => driver.restore(spec, kept));
      expect(Number(await copy.run('cat /workspace/n'))).toBeGreaterThan(0);
      await driver.destroy(copy.id);
    }
    await driver.suspend(first.id);
    await driver.checkpoint(first.id);
    expect(await driver.probe(first.id)).toEqual({ state: 'suspended' });
    await driver.resume(first.id);
    await driver.destroy(first.id);
  }, 90_000);

  it('outlive their sandbox and their driver, are found again, and are forgotten on request', async () => {
    const first = await created();
    await first.run('mkdir -p /workspace; echo kept > /workspace/file');
    const kept = await driver.checkpoint(first.id);
    await driver.destroy(first.id);
    const later = new NsDriver(options);
    expect((await later.checkpoints()).map(({ ref }) => ref)).toContain(kept.ref);
    expect((await later.checkpoints()).every(({ sessionId }) => sessionId === 'disk-0001')).toBe(
      true,
    );
    const read = await later.readCheckpoint(kept, async ({ client }) => {
      const parts: Buffer[] = [];
      for await (const part of client.files.read('/workspace/file')) parts.push(part);
      return Buffer.concat(parts).toString();
    });
    expect(read).toBe('kept\n');
    expect(await later.list()).toHaveLength((await driver.list()).length);
    await later.forget(kept.ref);
    await later.forget(kept.ref);
    await expect(later.restore(specOf('gone'), kept)).rejects.toMatchObject({
      reason: 'unsupported',
    });
    await expect(later.restore(specOf('bad'), { ref: '../x', bytes: 0 })).rejects.toMatchObject({
      next: 'refuse',
    });
    await later.close();
  }, 60_000);

  it('are refused, with the reason, where files cannot be cloned', async () => {
    const plain = new NsDriver({ ...nsOptions(), store: 'plain' });
    const { offered, missing } = await plain.capabilities();
    // On a machine whose temporary directory is on btrfs or XFS there is nothing to refuse.
    if (offered.includes('checkpoint')) return;
    expect(missing.checkpoint).toMatch(/cannot be cloned/);
    const spec = specOf('plain');
    await plain.create(spec);
    await expect(plain.checkpoint(spec.id)).rejects.toMatchObject({ reason: 'unsupported' });
    await plain.destroy(spec.id);
    await plain.close();
  }, 60_000);

  it('leave no disk and no half-made checkpoint behind', async () => {
    for (const id of made) await driver.destroy(id);
    expect(readdirSync(join(options.dataDir, 'store/d'))).toEqual([]);
    const left = readdirSync(join(options.dataDir, 'store/c')).filter((name) => name.includes('~'));
    expect(left).toEqual([]);
  }, 60_000);
});
