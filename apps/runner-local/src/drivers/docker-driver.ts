import { readFile } from 'node:fs/promises';
import type { Agent } from 'node:http';
import type { Duplex } from 'node:stream';
import {
  type CallOptions,
  type Capability,
  type CheckpointKeeper,
  type DriverCapabilities,
  DriverRefused,
  DriverUnavailable,
  type NativeCheckpoint,
  type Probe,
  type SandboxDriver,
  SandboxError,
  SandboxGone,
  type SandboxId,
  type SandboxRecord,
  type SandboxSpec,
} from '@vmux/runner-kit';
import Docker from 'dockerode';
import { agentFor } from './docker-agent';
import { archiveOf } from './docker-archive';
import {
  containerName,
  containerOptions,
  OURS,
  type Restored,
  RUNNER_LABEL,
  SOCKET,
  SUPERVISOR,
  sandboxOf,
} from './docker-container';
import { DockerEgress, hostsFrom, networkOptions } from './docker-egress';
import { type DockerEndpoint, optionsOf } from './docker-endpoint';
import { ExecPipe } from './docker-exec-pipe';
import { artifactOf, DockerLayers } from './docker-layers';
import { resolveHosts } from './ns-egress-hosts';

export interface DockerDriverSettings {
  readonly runnerId: string;
  readonly endpoint: DockerEndpoint;
  /** For sessions that name no image. */
  readonly defaultImage: string;
  /** The supervisor's static program, for the engine's architecture. */
  readonly supervisorFile: string;
  /** `vmux-ns`, which guards the networks of sandboxes; without it they have none. */
  readonly guardFile?: string;
}

/** As the engine numbers what may have become of a path: 0 changed, 1 added, 2 deleted. */
const DELETED = 2;
interface Change {
  readonly Path: string;
  readonly Kind: number;
}

const notYet = 'not offered by the docker driver yet';
/** A commit cuts times to seconds, drops attributes, fills holes and takes our own files along. */
const noCommit =
  'its checkpoints are layers made out of portable ones: that takes an artifact store';

const noQuotas = 'the engine’s storage has no quotas that hold, as far as it tells: give it zfs';

const MAX_GUARDED = 4096;

/**
 * Sandboxes as containers of any engine, on this machine or another: the supervisor is put into the
 * container as a file and reached over an exec's stdio, so nothing is mounted and no kernel is shared by
 * assumption. The workload is root beside its supervisor: a sandbox can falsify its own record, nobody
 * else's.
 */
export class DockerDriver implements SandboxDriver {
  readonly provider = 'docker';
  private readonly docker: Docker;
  private readonly egress: DockerEgress | undefined;
  private readonly layers: DockerLayers;
  /** By container and start: whether its network was seen to be guarded. */
  private readonly guarded = new Map<string, Promise<void>>();
  private swept: Promise<void> | undefined;

  constructor(private readonly settings: DockerDriverSettings) {
    const options = optionsOf(settings.endpoint);
    const agent = agentFor(options.protocol === 'https' ? 'https' : 'http');
    // Taken by the client, and missing in its types.
    const connected: Docker.DockerOptions & { agent: Agent } = { ...options, agent };
    this.docker = new Docker(connected);
    this.layers = new DockerLayers(this.docker, settings.runnerId);
    const { guardFile } = settings;
    this.egress = guardFile ? new DockerEgress(this.docker, guardFile) : undefined;
  }

  async capabilities(): Promise<DriverCapabilities> {
    const noNetwork = 'sandboxes have no network but their own loopback: egress is switched off';
    const missing = {
      gpu: notYet,
      build: 'the docker driver builds no images: build one and name it',
      checkpoint: noCommit,
      memorySnapshot: notYet,
      fork: noCommit,
      ...(this.egress ? {} : { egress: noNetwork }),
    };
    try {
      const limited = await this.limitsDisk();
      const offered = [
        'suspend',
        'pty',
        'previews',
        ...(limited ? ['diskLimit'] : []),
        ...(this.egress ? ['egress'] : []),
      ] as Capability[];
      const diskLimit = noQuotas;
      return {
        available: true,
        reason: null,
        offered,
        missing: limited ? missing : { ...missing, diskLimit },
      };
    } catch (error) {
      const reason = `no Docker engine answers at ${this.settings.endpoint.host} (${messageOf(error)}): start it or set DOCKER_HOST`;
      return { available: false, reason, offered: [], missing };
    }
  }

  create(spec: SandboxSpec, { signal }: CallOptions = {}): Promise<void> {
    return this.make(spec, spec.image ?? this.settings.defaultImage, null, signal);
  }

  private async make(
    spec: SandboxSpec,
    image: string,
    restored: Restored | null,
    signal?: AbortSignal,
  ): Promise<void> {
    if (spec.egress && !this.egress)
      throw new DriverRefused(
        'unsupported',
        'this runner gives its docker sandboxes no network: ask for a sandbox without egress',
      );
    if (spec.allowHosts?.length && !spec.egress)
      throw new DriverRefused('invalid', 'allowHosts adds to egress: switch egress on');
    if (spec.gpu)
      throw new DriverRefused('unsupported', 'a docker sandbox has no GPU: choose a GPU provider');
    const limitsDisk = await this.call(() => this.limitsDisk());
    if (spec.needsDiskLimit && !limitsDisk)
      throw new DriverRefused('unsupported', `${noQuotas}, or ask for no disk size`);
    const allowed = await resolveHosts(spec.allowHosts ?? []);
    const options = containerOptions(spec, image, this.settings.runnerId, limitsDisk, restored);
    const egress = spec.egress ? this.egress : undefined;
    if (egress) {
      Object.assign(options.HostConfig ?? {}, networkOptions(options.name ?? '', allowed));
      await this.call(() => egress.createNetwork(options.name ?? '', options.Labels ?? {}));
    }
    const container = await this.call(() => this.docker.createContainer(options)).catch(
      async (fault) => {
        await egress?.removeNetwork(options.name ?? '');
        throw fault;
      },
    );
    try {
      signal?.throwIfAborted();
      await this.call(async () => container.putArchive(await this.ourFiles(), { path: '/' }));
      await this.call(() => container.start());
      if (egress) await this.expectGuarded(container);
      signal?.throwIfAborted();
    } catch (error) {
      await this.remove(container);
      await egress?.removeNetwork(options.name ?? '');
      throw error;
    }
  }

  async adopt(id: SandboxId): Promise<SandboxRecord> {
    const found = (await this.list()).find((record) => sameSandbox(record.id, id));
    if (!found) throw new SandboxGone('the engine has no such container');
    if (found.probe.state === 'gone') throw new SandboxGone(found.probe.evidence);
    return found;
  }

  async list(): Promise<readonly SandboxRecord[]> {
    await this.sweepNetworks();
    const containers = await this.call(() =>
      this.docker.listContainers({
        all: true,
        filters: { label: [`${RUNNER_LABEL}=${this.settings.runnerId}`] },
      }),
    );
    return containers.flatMap((container) => {
      const ours = sandboxOf(container.Labels);
      if (!ours) return [];
      const { restoredFrom } = ours;
      const madeOf = restoredFrom && artifactOf(restoredFrom);
      const [createdAtMs, probe] = [container.Created * 1000, probeOf(container.State)];
      return [{ ...ours, createdAtMs, probe, madeOf }];
    });
  }

  async probe(id: SandboxId): Promise<Probe> {
    try {
      const { State } = await this.call(() => this.containerOf(id).inspect());
      return probeOf(State.Status, State.OOMKilled ? 'killed for exceeding its memory' : undefined);
    } catch (error) {
      if (error instanceof SandboxGone) return { state: 'gone', evidence: error.evidence };
      throw error;
    }
  }

  async openPipe(id: SandboxId): Promise<Duplex> {
    const container = this.containerOf(id);
    await this.expectGuarded(container);
    const exec = await this.call(() =>
      container.exec({
        Cmd: [SUPERVISOR, 'pipe', `--socket=${SOCKET}`],
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: false,
      }),
    );
    return new ExecPipe(await this.call(() => exec.start({ hijack: true, stdin: true })));
  }

  async suspend(id: SandboxId): Promise<void> {
    if ((await this.running(id)) === 'suspended') return;
    await this.call(() => this.containerOf(id).pause());
  }

  async resume(id: SandboxId): Promise<void> {
    if ((await this.running(id)) === 'running') return;
    await this.call(() => this.containerOf(id).unpause());
  }

  async checkpoint(): Promise<NativeCheckpoint> {
    throw new DriverRefused('unsupported', noCommit);
  }

  async keeper(id: SandboxId, artifact: string): Promise<CheckpointKeeper> {
    const { Image } = await this.call(() => this.containerOf(id).inspect());
    const { ref, keep } = await this.call(() => this.layers.keeper(id, Image, artifact));
    return { ref, keep: (files, options) => this.call(() => keep(files, options)) };
  }

  async restore(
    spec: SandboxSpec,
    { ref }: NativeCheckpoint,
    { signal }: CallOptions = {},
  ): Promise<void> {
    const found = await this.call(() => this.layers.find(ref));
    if (!found) throw new DriverRefused('unsupported', 'this runner does not have the checkpoint');
    const base = await this.call(() =>
      this.layers.layersOf(spec.image ?? this.settings.defaultImage),
    );
    if (base.join() !== found.layers.slice(0, found.baseLayers).join())
      throw new DriverRefused('unsupported', 'the checkpoint is of another base');
    await this.make(spec, found.imageId, { ref, sinceNs: found.sinceNs }, signal);
  }

  checkpoints(): Promise<readonly { readonly ref: string; readonly sessionId: string }[]> {
    return this.call(() => this.layers.refs());
  }

  forget(ref: string): Promise<void> {
    return this.call(() => this.layers.forget(ref));
  }

  async removed(id: SandboxId): Promise<readonly string[]> {
    const changes: readonly Change[] | null = await this.call(() => this.containerOf(id).changes());
    return (changes ?? [])
      .filter(({ Kind }) => Kind === DELETED)
      .map(({ Path }) => Buffer.from(Path).toString('latin1'));
  }

  async destroy(id: SandboxId): Promise<void> {
    await this.remove(this.containerOf(id));
    await this.call(async () => this.egress?.removeNetwork(containerName(id)));
    await this.call(() => this.layers.sweep());
  }

  async close(): Promise<void> {}

  /** Once in the life of this driver; tried again where it failed. */
  private async sweepNetworks(): Promise<void> {
    this.swept ??= this.call(async () => this.egress?.sweepNetworks(this.settings.runnerId));
    try {
      await this.swept;
    } catch (fault) {
      this.swept = undefined;
      throw fault;
    }
  }

  /** Whether the engine's storage can hold a container to a size. */
  private async limitsDisk(): Promise<boolean> {
    const { Driver }: { readonly Driver?: string } = await this.docker.info();
    // On btrfs a size counts the image too, and what was written beyond it when that was tried was taken.
    return Driver === 'zfs';
  }

  private containerOf(id: SandboxId): Docker.Container {
    return this.docker.getContainer(containerName(id));
  }

  /**
   * Before anything is run in it: whoever created it may have ended in between, and a container that was
   * started again has a new network.
   */
  private async expectGuarded(container: Docker.Container): Promise<void> {
    const { Id, Image, State, HostConfig } = await this.call(() => container.inspect());
    const { NetworkMode, ExtraHosts } = HostConfig;
    if (NetworkMode === 'none') return;
    const probe = probeOf(State.Status);
    if (probe.state === 'gone') throw new SandboxGone(probe.evidence);
    const { egress, guarded } = this;
    if (!egress) throw new DriverUnavailable('its network cannot be guarded: egress is off here');
    const key = `${Id} ${State.StartedAt}`;
    const guard = () => this.call(() => egress.guard(Id, Image, hostsFrom(ExtraHosts)));
    const guarding = guarded.get(key) ?? guard();
    guarded.set(key, guarding);
    try {
      await guarding;
    } catch (fault) {
      guarded.delete(key);
      throw fault;
    }
    for (const [oldest] of guarded)
      if (guarded.size > MAX_GUARDED) guarded.delete(oldest);
      else break;
  }

  private async running(id: SandboxId): Promise<'running' | 'suspended'> {
    const probe = await this.probe(id);
    if (probe.state === 'gone') throw new SandboxGone(probe.evidence);
    return probe.state;
  }

  private async ourFiles(): Promise<Buffer> {
    const content = await readFile(this.settings.supervisorFile);
    return archiveOf([
      { path: `${OURS}/`, mode: 0o700 },
      { path: SUPERVISOR.slice(1), mode: 0o555, content },
    ]);
  }

  private async remove(container: Docker.Container): Promise<void> {
    try {
      await container.remove({ force: true, v: true });
    } catch (error) {
      // 404: it is gone. 409: somebody is already removing it.
      if (![404, 409].includes(statusOf(error))) throw unavailable(error);
    }
  }

  private async call<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw error instanceof SandboxError ? error : translated(error);
    }
  }
}

function probeOf(status: string, evidence?: string): Probe {
  if (status === 'running') return { state: 'running' };
  if (status === 'paused') return { state: 'suspended' };
  return { state: 'gone', evidence: evidence ?? `the container is ${status}` };
}

const sameSandbox = (one: SandboxId, other: SandboxId): boolean =>
  one.sessionId === other.sessionId && one.epoch === other.epoch && one.instance === other.instance;

/** The engine's errors end here. */
function translated(error: unknown): Error {
  const status = statusOf(error);
  const message = messageOf(error);
  if (status === 404 && /no such image/i.test(message)) {
    return new DriverRefused('invalid', `${message}: pull or build the image first`, {
      cause: error,
    });
  }
  if (status === 404) return new SandboxGone('the engine has no such container', { cause: error });
  if (status === 409 && /already in use/i.test(message)) {
    return new DriverRefused('exists', 'the sandbox exists already', { cause: error });
  }
  if (status === 409 && /is not running/i.test(message)) {
    return new SandboxGone('the container is not running', { cause: error });
  }
  if (status === 400) return new DriverRefused('invalid', message, { cause: error });
  return unavailable(error);
}

const unavailable = (error: unknown) =>
  new DriverUnavailable(`the Docker engine failed (${messageOf(error)})`, { cause: error });

const statusOf = (error: unknown): number =>
  typeof error === 'object' && error !== null && 'statusCode' in error
    ? Number(error.statusCode)
    : 0;

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);
