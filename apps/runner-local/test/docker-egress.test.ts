import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type SandboxId, type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  releaseLater,
  startDockerEngine,
} from '@vmux/testing';
import Docker from 'dockerode';
import { containerName, RUNNER_LABEL } from '../src/drivers/docker-container';
import { DockerDriver } from '../src/drivers/docker-driver';
import { DockerEgress } from '../src/drivers/docker-egress';

const reason = noDockerEngineBecause();
const INTERNET = ['203.0.113.2', '8.8.4.4', '10.9.9.9', '192.168.7.7', '169.254.169.254'];
const native = join(projectRoot(), 'dist/native');

/** The engine's own network plays the host; another one plays the internet, private addresses included. */
describeUnless(reason === undefined, reason ?? '')('a docker sandbox with egress', () => {
  let engine: DockerEngine;
  let driver: DockerDriver;
  let docker: Docker;
  const made: SandboxId[] = [];

  beforeAll(async () => {
    engine = await startDockerEngine();
    driver = driverWith(join(native, 'vmux-ns'));
    docker = new Docker({ socketPath: engine.socketPath });
    const serve = (word: string, port: number) =>
      `require("net").createServer((s) => s.end("${word}")).listen(${port}, "0.0.0.0", () => console.log("up"))`;
    const inEngine = ['-t', String(engine.pid), '-n'];
    const start = async (...args: string[]) => {
      const child = spawn('nsenter', [...inEngine, ...args], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      releaseLater(() => void child.kill('SIGKILL'));
      await once(child.stdout, 'data');
      return child;
    };
    const internet = await start('unshare', '-n', process.execPath, '-e', serve('internet', 80));
    await start(process.execPath, '-e', serve('host', 8080));
    const inside = `nsenter -t ${internet.pid} -n`;
    const script = `ip link add up0 type veth peer name in0 netns ${internet.pid}
      ip addr add 203.0.113.1/24 dev up0; ip link set up0 up
      ${inside} ip link set lo up; ${inside} ip link set in0 up
      ${INTERNET.map((address) => `${inside} ip addr add ${address}/${address.startsWith('203') ? 24 : 32} dev in0`).join('\n')}
      ip route add default via 203.0.113.2`;
    execFileSync('nsenter', [...inEngine, 'sh', '-ec', script]);
  }, 600_000);
  afterAll(async () => {
    for (const id of made) await driver.destroy(id);
    await engine?.stop();
    await releaseAll();
  }, 60_000);

  const driverWith = (guardFile: string) =>
    new DockerDriver({
      runnerId: 'test',
      endpoint: { host: `unix://${engine.socketPath}`, source: 'the test' },
      defaultImage: engine.image,
      supervisorFile: join(native, 'vmux-supervisor'),
      guardFile,
    });

  async function sandbox(
    network: Pick<SandboxSpec, 'egress' | 'allowHosts'>,
    creator: DockerDriver = driver,
  ) {
    const instance = randomBytes(8).toString('hex');
    const id = { sessionId: 'egress-0a1b', epoch: 1, instance };
    made.push(id);
    const limits = { cpus: 1, memoryMiB: 256, diskMiB: 256, pids: 128 };
    await creator.create({ id, limits, image: null, gpu: null, ...network });
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    const run = async (program: string) => {
      const execId = randomBytes(8).toString('hex');
      await client.start({ execId, argv: ['python3', '-c', program] });
      let text = '';
      for await (const item of client.read(execId)) if (item.kind === 'stdout') text += item.data;
      return text.trim();
    };
    const dial = (address: string, port: number) =>
      run(
        `import socket\ntry: print(socket.create_connection(("${address}", ${port}), 3).recv(99).decode())\nexcept OSError: print("refused")`,
      );
    return { id, run, dial };
  }

  it('is offered', async () => {
    expect((await driver.capabilities()).offered).toContain('egress');
  });

  it('reaches the public internet and nothing that is not public, until it is allowed by name', async () => {
    const { id, run, dial } = await sandbox({ egress: true });
    const gateway = await run(
      'import struct, socket\nfor l in open("/proc/net/route"):\n f = l.split()\n if f[1] == "00000000" and f[2] != "00000000": print(socket.inet_ntoa(struct.pack("<L", int(f[2], 16))))',
    );
    const reached = Object.fromEntries(
      await Promise.all(INTERNET.map(async (address) => [address, await dial(address, 80)])),
    );
    expect(reached).toEqual({
      '203.0.113.2': 'internet',
      '8.8.4.4': 'internet',
      '10.9.9.9': 'refused',
      '192.168.7.7': 'refused',
      '169.254.169.254': 'refused',
    });
    expect(gateway).toMatch(/^172\./);
    expect(await dial(gateway, 8080)).toBe('refused');
    expect(await dial('203.0.113.1', 8080)).toBe('refused');
    expect(await run('print(open("/proc/net/if_inet6").read())').catch(() => '')).toBe('');

    const other = await sandbox({ egress: true, allowHosts: ['10.9.9.9', '203.0.113.1'] });
    expect(await other.dial('10.9.9.9', 80)).toBe('internet');
    expect(await other.dial('203.0.113.1', 8080)).toBe('host');
    expect(await other.dial('192.168.7.7', 80)).toBe('refused');
    const { NetworkSettings } = await docker.getContainer(containerName(id)).inspect();
    const [own] = Object.values(NetworkSettings.Networks);
    expect(await other.dial(String(own?.IPAddress), 80)).toBe('refused');
  }, 180_000);

  it('is guarded before anything runs in it, also when its creator ended before that', async () => {
    const directory = mkdtempSync('/tmp/vmux-guard-');
    releaseLater(() => rmSync(directory, { recursive: true }));
    const nothing = join(directory, 'guard');
    writeFileSync(nothing, '#!/bin/sh\n');
    const allowed = { egress: true, allowHosts: ['10.9.9.9'] };
    const { id, dial } = await sandbox(allowed, driverWith(nothing));
    expect(await dial('8.8.4.4', 80)).toBe('internet');
    expect(await dial('10.9.9.9', 80)).toBe('internet');
    expect(await dial('192.168.7.7', 80)).toBe('refused');
    expect(await dial('203.0.113.1', 8080)).toBe('refused');
    // What is guarded already stays so.
    const next = await driverWith(join(native, 'vmux-ns')).openPipe(id);
    (await SupervisorClient.connect(next, id)).close();
    expect(await dial('192.168.7.7', 80)).toBe('refused');
  }, 180_000);

  it('is not waited for for ever when its guard hangs, and leaves nothing then', async () => {
    const directory = mkdtempSync('/tmp/vmux-guard-');
    releaseLater(() => rmSync(directory, { recursive: true }));
    const hangs = join(directory, 'guard');
    writeFileSync(hangs, '#!/bin/sh\nexec sleep 1000\n');
    const { id } = await sandbox({ egress: false });
    const before = (await docker.listContainers({ all: true })).length;
    const guarding = new DockerEgress(docker, hangs, 2000).guard(
      containerName(id),
      engine.image,
      [],
    );
    await expect(guarding).rejects.toMatchObject({ code: 'driver_unavailable' });
    expect(await docker.listContainers({ all: true })).toHaveLength(before);
  }, 60_000);

  it('whose creator was killed in between leaves no network for ever', async () => {
    const egress = new DockerEgress(docker, join(native, 'vmux-ns'));
    const { id } = await sandbox({ egress: true });
    const label = { [RUNNER_LABEL]: 'test' };
    await egress.createNetwork('vmux-orphan', label);
    await egress.createNetwork('vmux-of-another', { [RUNNER_LABEL]: 'another' });
    const names = async () =>
      (await docker.listNetworks()).map(({ Name }) => Name).filter((name) => /^vmux/.test(name));
    await egress.sweepNetworks('test');
    expect(await names()).toContain('vmux-orphan');
    await egress.sweepNetworks('test', -1000);
    const left = await names();
    expect(left).toEqual(expect.arrayContaining([containerName(id), 'vmux-of-another']));
    expect(left).not.toContain('vmux-orphan');
    await egress.removeNetwork('vmux-of-another');
    await driver.destroy(id);
  }, 60_000);

  it('has a network of its own, which goes with it, and a sandbox without egress has none', async () => {
    const { id } = await sandbox({ egress: true });
    const named = async () =>
      (await docker.listNetworks()).filter(({ Name }) => Name === containerName(id)).length;
    expect(await named()).toBe(1);
    await driver.destroy(id);
    expect(await named()).toBe(0);
    const cut = await sandbox({ egress: false });
    expect(await cut.dial('203.0.113.2', 80)).toBe('refused');
    const left = await docker.listContainers({ all: true });
    expect(left.every(({ Names }) => Names.some((name) => name.startsWith('/vmux-')))).toBe(true);
  }, 180_000);
});
