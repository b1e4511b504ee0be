import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  releaseAll,
  startDockerEngine,
  until,
} from '@vmux/testing';
import Docker from 'dockerode';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';

const PATIENCE = { timeoutMs: 120_000, everyMs: 100 };
const SECRET = 'a-secret-that-nobody-else-may-read';
const noDocker = noDockerEngineBecause();

describeUnless(!noDocker, noDocker ?? '')('checkpoints of docker sessions', () => {
  let engine: DockerEngine;
  let stack: EmbeddedStack;
  let docker: Docker;

  beforeAll(async () => {
    engine = await startDockerEngine();
    docker = new Docker({ socketPath: engine.socketPath });
    stack = await EmbeddedStack.start(engine);
  }, 600_000);
  afterAll(async () => {
    await stack?.stop();
    await engine?.stop();
    await releaseAll();
  }, 120_000);

  const imagesOf = async ({ id }: Pick<ClientSession, 'id'>) => {
    const images = await docker.listImages({ filters: { label: ['dev.vmux.checkpoint.runner'] } });
    return images.filter(({ RepoTags, Labels }) =>
      [...(RepoTags ?? []), ...Object.values(Labels ?? {})].some((text) => text.includes(id)),
    );
  };
  const kept = (session: ClientSession, count: number) =>
    until(async () => {
      const images = await imagesOf(session);
      if (images.length === count) return images;
      throw new Error(`${images.length} images`);
    }, PATIENCE);
  const containerOf = async (sessionId: string) => {
    const containers = await docker.listContainers({
      filters: { label: [`dev.vmux.session=${sessionId}`] },
    });
    return docker.getContainer(containers[0]?.Id ?? '').inspect();
  };
  const rollBack = async (session: ClientSession, checkpointId: string) => {
    const before = (await session.types()).filter((type) => type === 'RolledBack').length;
    expect(await session.ask('rollback', { checkpointId })).toMatchObject({ status: 202 });
    await until(async () => {
      const types = await session.types();
      return types.filter((type) => type === 'RolledBack').length > before;
    }, PATIENCE);
  };
  const create = () =>
    stack.create({ provider: 'docker', env: { TOKEN: SECRET }, resources: { pids: 77 } });

  it('are portable and layers of an image, both recorded, and begin forks and rollbacks', async () => {
    const session = await create();
    await session.run(`echo one > file; rm /etc/issue; echo "$TOKEN"`);
    const first = await session.checkpoint();
    await kept(session, 1);
    await session.run('echo two > file; echo more > /etc/more');
    const second = await session.checkpoint();
    const images = await kept(session, 2);
    expect((await session.info()).checkpoints).toMatchObject([
      { id: first, native: 'docker', portable: true },
      { id: second, native: 'docker', portable: true },
    ]);
    const recorded = (await session.events()).filter(({ type }) => type === 'CheckpointTaken');
    expect(recorded.map(({ data }) => data.checkpoint)).toMatchObject([
      { artifact: expect.any(String), native: { provider: 'docker' } },
      { artifact: expect.any(String), native: { provider: 'docker' } },
    ]);

    await rollBack(session, first);
    expect(await session.run('cat file; ls /etc/issue /etc/more 2>/dev/null | wc -l')).toBe(
      'one\n0\n',
    );
    const asked = await session.ask('fork', { checkpointId: second, count: 2 });
    expect(asked.status).toBe(202);
    const forks: ClientSession[] = await until(async () => {
      const { forks: made } = await session.info();
      return made.length === 2 && made.map((id: string) => stack.session(id));
    }, PATIENCE);
    for (const fork of forks) {
      await fork.becomes('running');
      expect(await fork.run('cat file /etc/more; echo "$TOKEN"')).toBe(`two\nmore\n${SECRET}\n`);
    }

    const layered = new Set(images.map(({ Id }) => Id));
    for (const { id } of [session, ...forks]) {
      const { Image, HostConfig, Mounts, Config } = await containerOf(id);
      expect(layered.has(Image)).toBe(true);
      expect(HostConfig).toMatchObject({
        ...{ Privileged: false, CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges:true'] },
        ...{ PidsLimit: 77, IpcMode: 'private', PidMode: '', UsernsMode: '' },
      });
      expect(Mounts).toEqual([]);
      expect(JSON.stringify(Config)).not.toContain(SECRET);
    }
    // The images know nothing of the sessions but their files.
    for (const Id of layered) {
      const inspected = JSON.stringify(await docker.getImage(Id).inspect());
      expect(inspected).not.toContain(SECRET);
      const probe = await docker.createContainer({ Image: Id, Cmd: ['true'] });
      await expect(probe.getArchive({ path: '/.vmux' })).rejects.toMatchObject({ statusCode: 404 });
      await probe.remove();
    }

    // What is made of an image goes on without it; the last one takes it along.
    await session.stop();
    await stack.api.call('DELETE', session.path);
    for (const fork of forks) expect(await fork.run('cat file')).toBe('two\n');
    for (const fork of forks) {
      await fork.stop();
      await stack.api.call('DELETE', fork.path);
    }
    await kept(session, 0);
  }, 240_000);

  it('are whole when the runner is killed while it keeps one, and go with their session', async () => {
    const session = await create();
    await session.run('head -c 60000000 /dev/urandom > big; sha256sum big > sum');
    const { json } = await session.ask('checkpoints', {});
    await until(async () => (await session.types()).includes('CheckpointTaken'), PATIENCE);
    process.kill(stack.pidOf('runner-local'), 'SIGKILL');
    await rollBack(session, json.checkpointId);
    expect(await session.run('sha256sum -c sum')).toBe('big: OK\n');
    const again = await session.checkpoint();
    await until(async () => (await imagesOf(session)).length > 0, PATIENCE);
    await rollBack(session, again);
    expect(await session.run('sha256sum -c sum')).toBe('big: OK\n');
    await session.stop();
    await stack.api.call('DELETE', session.path);
    await kept(session, 0);
  }, 240_000);

  it.each(['ns', 'docker'])(
    'bring back settings, services and ports beside the files on %s, and name their base',
    async (provider) => {
      const session = await stack.create({
        ...{ provider, env: { TOKEN: SECRET }, cwd: '/workspace/inner', ports: [8123] },
      });
      const service = await session.start('echo "$TOKEN $PWD"; exec sleep 1000', {
        service: { name: 'web' },
      });
      await until(async () => (await session.output(service)).length > 0, PATIENCE);
      const taken = await session.checkpoint();
      const [event] = (await session.events()).filter(({ type }) => type === 'CheckpointTaken');
      expect(event?.data.checkpoint).toMatchObject({
        base: {
          digest: expect.any(String),
          distribution: expect.any(String),
          architecture: expect.any(String),
        },
      });
      await rollBack(session, taken);
      const asked = await session.ask('fork', { checkpointId: taken });
      expect(asked.status).toBe(202);
      const [child = ''] = await until(async () => {
        const { forks } = await session.info();
        return forks.length === 1 && (forks as string[]);
      }, PATIENCE);
      for (const each of [session, stack.session(child)]) {
        await each.becomes('running');
        expect(await each.run('echo "$TOKEN $PWD"')).toBe(`${SECRET} /workspace/inner\n`);
        const [created] = await each.events();
        expect(created?.data.spec).toMatchObject({ ports: [expect.anything()] });
        expect(await each.info()).toMatchObject({ provider });
      }
      const { json } = await stack.api.get(`${session.path}/execs?limit=50`);
      const again = json.execs.find(({ follows }: { follows: string }) => follows === service);
      expect(again).toMatchObject({ purpose: 'service' });
      await until(
        async () => (await session.output(again.id)) === `${SECRET} /workspace/inner\n`,
        PATIENCE,
      );
      for (const each of [session, stack.session(child)]) {
        await each.stop();
        await stack.api.call('DELETE', each.path);
      }
    },
    240_000,
  );

  it('are refused over another base unless that is allowed', async () => {
    const session = await stack.create({ provider: 'ns' });
    await session.run('echo kept > file');
    await session.ask('move', { provider: 'docker' });
    await until(async () => (await session.types()).includes('MoveFailed'), PATIENCE);
    const failed = (await session.events()).find(({ type }) => type === 'MoveFailed');
    expect(failed?.data.message).toContain('another base');
    await session.becomes('running');
    expect(await session.info()).toMatchObject({ provider: 'ns' });
    await session.ask('move', { provider: 'docker', allowBaseChange: true });
    await until(async () => (await session.types()).includes('Moved'), PATIENCE);
    expect(await session.run('cat file')).toBe('kept\n');
    await session.stop();
    await stack.api.call('DELETE', session.path);
  }, 240_000);
});
