import { readdirSync } from 'node:fs';
import type { DockerEngine, SeededRandom } from '@vmux/testing';
import Docker from 'dockerode';
import { SUPERVISOR } from '../../apps/runner-local/src/drivers/docker-container';
import { commandOf } from './leftovers';

const LABEL = 'dev.vmux';
const DOWN = ['ECONNREFUSED', 'ECONNRESET', 'ENOENT'];
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

interface Container {
  readonly id: string;
  readonly session: string;
  readonly instance: string;
}

/** The Docker engine that this run has started, its containers, and what can be done to them from outside. */
export class Engine {
  private readonly docker: Docker;

  constructor(
    private readonly engine: DockerEngine,
    /** Told of every session that loses a container, before it does. */
    private readonly harm: (session: string) => void,
  ) {
    this.docker = new Docker({ socketPath: engine.socketPath });
  }

  /** Nobody is told why: neither the engine nor the runner. */
  async killContainer(random: SeededRandom): Promise<string | null> {
    const containers = await this.containers();
    return containers.length > 0 && this.kill(random.pick(containers)) ? 'kill a container' : null;
  }

  /** As an administrator does who needs the room. */
  async removeContainer(random: SeededRandom): Promise<string | null> {
    const containers = await this.containers();
    if (containers.length === 0) return null;
    const { id, session } = random.pick(containers);
    this.harm(session);
    await this.docker
      .getContainer(id)
      .remove({ force: true, v: true })
      .catch((fault) => {
        // It is being removed at this moment, or has been.
        if (![404, 409].includes(fault.statusCode)) throw fault;
      });
    return 'remove a container';
  }

  /** False when the session has no container now, or the engine is being restarted. */
  async strike(session: string): Promise<boolean> {
    const found = await this.containers().catch((fault) => {
      if (!DOWN.includes(fault.code)) throw fault;
      return [];
    });
    const own = found.find((each) => each.session === session);
    return own !== undefined && this.kill(own);
  }

  async freeze(random: SeededRandom): Promise<string> {
    this.engine.daemon.signal('SIGSTOP');
    await pause(200 + random.integer(4_000));
    this.engine.daemon.signal('SIGCONT');
    return 'freeze dockerd';
  }

  /** Containers go on without it; the next one finds them, or ends them if it is not told to let them be. */
  async restart(random: SeededRandom): Promise<string> {
    const liveRestore = random.integer(3) > 0;
    if (!liveRestore) await this.harmAll();
    await this.engine.daemon.kill();
    await pause(random.integer(1_500));
    await this.engine.daemon.start({ liveRestore });
    // Some may have been made while it was on the way to be killed.
    if (!liveRestore) await this.harmAll();
    return liveRestore ? 'kill dockerd' : 'kill dockerd, and its containers with it';
  }

  /** What is kept for sandboxes and their checkpoints. */
  async remains(): Promise<string[]> {
    const containers = await this.docker.listContainers({
      all: true,
      filters: { label: [`${LABEL}.runner`] },
    });
    const images = await this.docker.listImages({
      filters: { label: [`${LABEL}.checkpoint.runner`] },
    });
    const networks = await this.docker.listNetworks({ filters: { label: [`${LABEL}.runner`] } });
    return [
      ...containers.map(({ Names, Status }) => `left behind: container ${Names[0]} (${Status})`),
      ...images.map(({ Id, RepoTags }) => `left behind: image ${RepoTags?.[0] ?? Id}`),
      ...networks.map(({ Name }) => `left behind: network ${Name}`),
    ];
  }

  private async harmAll(): Promise<void> {
    for (const { session } of await this.containers({ all: true })) this.harm(session);
  }

  private async containers({ all = false } = {}): Promise<Container[]> {
    const filters = { label: [`${LABEL}.runner`] };
    const found = await this.docker.listContainers({ all, filters });
    return found.map(({ Id, Labels }) => ({
      id: Id,
      session: Labels[`${LABEL}.session`] ?? '',
      instance: Labels[`${LABEL}.instance`] ?? '',
    }));
  }

  private kill({ session, instance }: Container): boolean {
    const pid = readdirSync('/proc').find((name) => isFirstOf(instance, name));
    if (!pid) return false;
    this.harm(session);
    process.kill(Number(pid), 'SIGKILL');
    return true;
  }
}

/** The first process of a container, by what it was started with. */
function isFirstOf(instance: string, pid: string): boolean {
  if (!/^\d+$/.test(pid)) return false;
  const [program, verb, ...rest] = commandOf(pid);
  return program === SUPERVISOR && verb === 'run' && rest.includes(`--instance=${instance}`);
}
