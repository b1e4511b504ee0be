import { join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import { driverContract, layersOn } from '@vmux/runner-kit/contract';
import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  startDockerEngine,
} from '@vmux/testing';
import Docker from 'dockerode';
import { containerName } from '../src/drivers/docker-container';
import { DockerDriver, type DockerDriverSettings } from '../src/drivers/docker-driver';

const reason = noDockerEngineBecause();
const group = describeUnless(reason === undefined, reason ?? '');

const settingsFor = (engine: DockerEngine): DockerDriverSettings => ({
  runnerId: 'test',
  endpoint: { host: `unix://${engine.socketPath}`, source: 'the test' },
  defaultImage: engine.image,
  supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
});

afterAll(releaseAll);

const openTarget = async () => {
  const engine = await startDockerEngine();
  const settings = settingsFor(engine);
  const docker = new Docker({ socketPath: engine.socketPath });
  const program = join(projectRoot(), 'dist/apps/runner-local/test/docker-contract-runner.js');
  return {
    openDriver: () => new DockerDriver(settings),
    killFromOutside: async (id: SandboxId) => docker.getContainer(containerName(id)).kill(),
    runner: { command: process.execPath, args: [program, JSON.stringify(settings)] },
    image: engine.image,
    close: () => engine.stop(),
  };
};

driverContract('docker', openTarget, group);
layersOn('docker', openTarget, group);

group('a docker sandbox', () => {
  let engine: DockerEngine;
  let driver: DockerDriver;
  let docker: Docker;
  const id: SandboxId = { sessionId: 'web-0a1b', epoch: 1, instance: 'i-1' };
  const limits = { cpus: 0.5, memoryMiB: 64, diskMiB: 64, pids: 32 };
  const spec = { id, limits, image: null, egress: false, gpu: null };

  beforeAll(async () => {
    engine = await startDockerEngine();
    driver = new DockerDriver(settingsFor(engine));
    docker = new Docker({ socketPath: engine.socketPath });
    await driver.create(spec);
  }, 600_000);
  afterAll(async () => {
    await driver.destroy(id);
    await engine.stop();
  });

  it('has no privilege, no host namespace, no device and no mount', async () => {
    const { HostConfig, Mounts } = await docker.getContainer(containerName(id)).inspect();
    expect(HostConfig).toMatchObject({
      Privileged: false,
      CapDrop: ['ALL'],
      NetworkMode: 'none',
      PidMode: '',
      UTSMode: '',
      UsernsMode: '',
      IpcMode: 'private',
      SecurityOpt: ['no-new-privileges:true'],
      Memory: 64 * 1024 * 1024,
      MemorySwap: 64 * 1024 * 1024,
      NanoCpus: 5e8,
      PidsLimit: 32,
    });
    expect(HostConfig.Binds ?? []).toEqual([]);
    expect(HostConfig.Devices ?? []).toEqual([]);
    expect(HostConfig.CapAdd).not.toEqual(expect.arrayContaining(['SYS_ADMIN']));
    expect(Mounts).toEqual([]);
  });

  it('runs under the engine’s seccomp filter', async () => {
    const info: { SecurityOptions?: readonly string[] } = await docker.info();
    expect(info.SecurityOptions).toEqual(
      expect.arrayContaining([expect.stringContaining('seccomp')]),
    );
  });

  it('is refused a network and a GPU before anything is made', async () => {
    const other = { ...spec, id: { ...id, instance: 'i-2' } };
    await expect(driver.create({ ...other, egress: true })).rejects.toMatchObject({
      next: 'refuse',
    });
    await expect(driver.create({ ...other, gpu: 'T4' })).rejects.toMatchObject({ next: 'refuse' });
    expect((await driver.list()).map((record) => record.id)).toEqual([id]);
  });

  it('is refused a disk limit where the engine cannot hold it to one, and made without', async () => {
    const other = { ...spec, id: { ...id, instance: 'i-4' } };
    const { Driver } = await docker.info();
    expect(Driver).toBe('overlay2');
    const { offered, missing } = await driver.capabilities();
    expect(offered).not.toContain('diskLimit');
    expect(missing.diskLimit).toMatch(/no quotas/);
    await expect(driver.create({ ...other, needsDiskLimit: true })).rejects.toMatchObject({
      next: 'refuse',
      reason: 'unsupported',
      message: expect.stringContaining('ask for no disk size'),
    });
    await driver.create(other);
    await driver.destroy(other.id);
  });

  it('of an image that is not there is refused with what to do', async () => {
    const other = { ...spec, id: { ...id, instance: 'i-3' }, image: 'nowhere:none' };
    await expect(driver.create(other)).rejects.toThrow(/pull or build the image/);
  });

  it('is not offered while no engine answers', async () => {
    const away = new DockerDriver({
      ...settingsFor(engine),
      endpoint: { host: 'unix:///nonexistent.sock', source: 'the test' },
    });
    expect(await away.capabilities()).toMatchObject({
      available: false,
      reason: expect.stringContaining('DOCKER_HOST'),
    });
  });
});
