import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import {
  type CallOptions,
  type DriverCapabilities,
  DriverRefused,
  DriverUnavailable,
  type NativeCheckpoint,
  type Probe,
  type SandboxDriver,
  SandboxGone,
  type SandboxId,
  type SandboxLimits,
  type SandboxRecord,
  type SandboxSpec,
  SupervisorClient,
} from '@vmux/runner-kit';
import { connectTo } from './ns-launcher';
import { bootId, checkId, isAlive, keyOf, startTimeOf } from './ns-store';

export interface ProcessDriverOptions {
  readonly dataDir: string;
  readonly supervisorPath: string;
  /** Told of every start, in words for whoever reads the log. */
  warn(message: string): void;
}

interface State {
  readonly id: SandboxId;
  readonly limits: SandboxLimits;
  readonly createdAtMs: number;
  /** `pid:ticks:boot` of its supervisor. */
  readonly owner: string;
}

export const NO_ISOLATION =
  'plain processes isolate nothing: what runs in this session can read and change everything that the runner’s user can, reach every network, and use all of the machine';

const none = 'plain processes isolate nothing';
const noLimit = `${none}: no limit is enforced, neither on memory, processors and processes nor on the disk`;
const MISSING = {
  gpu: none,
  build: none,
  suspend: 'plain processes cannot be suspended as one',
  checkpoint: none,
  memorySnapshot: none,
  fork: none,
  diskLimit: noLimit,
  memoryLimit: noLimit,
  cpuLimit: noLimit,
  pidsLimit: noLimit,
} as const;
const STARTED_WITHIN_MS = 10_000;
const ENDED_WITHIN_MS = 5_000;

/**
 * Sessions as plain processes beside the runner, as its own user: for trying vmux where nothing else can be
 * had. Nothing is kept apart and no limit is enforced; it exists only where somebody switched it on.
 */
export class ProcessDriver implements SandboxDriver {
  readonly provider = 'process';
  readonly isolates = false;

  constructor(private readonly options: ProcessDriverOptions) {}

  async capabilities(): Promise<DriverCapabilities> {
    const offered = ['pty', 'previews', 'egress'] as const;
    return { available: true, reason: null, offered, missing: MISSING };
  }

  async create(spec: SandboxSpec, { signal }: CallOptions = {}): Promise<void> {
    checkId(spec.id);
    if (spec.gpu !== null) throw new DriverRefused('unsupported', 'plain processes offer no GPU');
    if (spec.image !== null)
      throw new DriverRefused('unsupported', 'plain processes have no image: name none');
    if (spec.needsDiskLimit)
      throw new DriverRefused('unsupported', `${MISSING.diskLimit}: ask for no disk size`);
    this.options.warn(NO_ISOLATION);
    const directory = this.directoryOf(spec.id);
    await mkdir(this.options.dataDir, { recursive: true, mode: 0o700 });
    await mkdir(directory, { mode: 0o700 }).catch((fault) => {
      if (fault.code !== 'EEXIST') throw fault;
      throw new DriverRefused('exists', 'there is such a sandbox already: adopt or destroy it');
    });
    try {
      await mkdir(join(directory, 'workspace'), { mode: 0o700 });
      const pid = this.start(spec.id, directory);
      const owner = `${pid}:${await startTimeOf(pid)}:${await bootId()}`;
      const { id, limits } = spec;
      const state: State = { id, limits, createdAtMs: Date.now(), owner };
      await writeFile(join(directory, 'state.new'), JSON.stringify(state), { mode: 0o600 });
      await rename(join(directory, 'state.new'), join(directory, 'state.json'));
      await this.greet(id, signal);
    } catch (fault) {
      await this.destroy(spec.id);
      throw fault;
    }
  }

  async adopt(id: SandboxId): Promise<SandboxRecord> {
    const record = await this.record(keyOf(id));
    if (!record) throw new SandboxGone('this runner has no record of it');
    if (record.probe.state === 'gone') throw new SandboxGone(record.probe.evidence);
    return record;
  }

  async list(): Promise<readonly SandboxRecord[]> {
    const keys = await readdir(this.options.dataDir).catch(missingIs([]));
    const records = await Promise.all(keys.map((key) => this.record(key)));
    return records.filter((record) => record !== undefined);
  }

  async probe(id: SandboxId): Promise<Probe> {
    const gone: Probe = { state: 'gone', evidence: 'this runner has no record of it' };
    return (await this.record(keyOf(id)))?.probe ?? gone;
  }

  async openPipe(id: SandboxId, { signal }: CallOptions = {}): Promise<Duplex> {
    checkId(id);
    try {
      return await connectTo(join(this.directoryOf(id), 'sock'), signal);
    } catch (fault) {
      signal?.throwIfAborted();
      const probe = await this.probe(id);
      if (probe.state === 'gone') throw new SandboxGone(probe.evidence, { cause: fault });
      throw new DriverUnavailable('the supervisor takes no connection', { cause: fault });
    }
  }

  async suspend(): Promise<void> {
    throw new DriverRefused('unsupported', MISSING.suspend);
  }

  async resume(): Promise<void> {
    throw new DriverRefused('unsupported', MISSING.suspend);
  }

  async checkpoint(): Promise<NativeCheckpoint> {
    throw new DriverRefused('unsupported', MISSING.checkpoint);
  }

  async restore(): Promise<void> {
    throw new DriverRefused('unsupported', MISSING.checkpoint);
  }

  async destroy(id: SandboxId): Promise<void> {
    checkId(id);
    const key = keyOf(id);
    const state = await this.read(key);
    if (state && (await isAlive(state.owner))) {
      await this.end(state);
      // What still runs is not forgotten.
      if (!(await isOver(state.owner)))
        throw new DriverUnavailable('the processes of the session do not end');
    }
    await rm(this.directoryOf(id), { recursive: true, force: true });
  }

  async close(): Promise<void> {}

  /** Every session has a directory of its own; nothing keeps it there. */
  workspaceOf(id: SandboxId): string {
    return join(this.directoryOf(id), 'workspace');
  }

  private start(id: SandboxId, directory: string): number {
    const log = openSync(join(directory, 'supervisor.log'), 'a', 0o600);
    try {
      const args = [
        'run',
        `--listen=${join(directory, 'sock')}`,
        `--spool=${join(directory, 'spool')}`,
        `--epoch=${id.epoch}`,
        `--instance=${id.instance}`,
        '--lease-seconds=0',
        // The network is the machine's: a preview reaches what this session serves and nothing else there.
        '--own-ports',
      ];
      const stdio = ['ignore', 'ignore', log] as const;
      const options = { stdio: [...stdio], cwd: directory, env: {}, detached: true };
      const child = spawn(this.options.supervisorPath, args, options);
      child.on('error', () => undefined);
      if (child.pid === undefined)
        throw new DriverUnavailable(`${this.options.supervisorPath} cannot be started`);
      child.unref();
      return child.pid;
    } finally {
      closeSync(log);
    }
  }

  private async greet(id: SandboxId, signal?: AbortSignal): Promise<void> {
    for (const until = Date.now() + STARTED_WITHIN_MS; ; ) {
      signal?.throwIfAborted();
      try {
        const pipe = await this.openPipe(id, { signal });
        (await SupervisorClient.connect(pipe, { ...id, signal })).close();
        return;
      } catch (fault) {
        if (Date.now() > until || fault instanceof SandboxGone) throw fault;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  }

  /** First everything that it started, then itself. */
  private async end({ id, owner }: State): Promise<void> {
    const signal = AbortSignal.timeout(ENDED_WITHIN_MS);
    try {
      const pipe = await this.openPipe(id, { signal });
      const client = await SupervisorClient.connect(pipe, { ...id, signal });
      await client.stop(0, { signal });
      await client.quit({ signal });
      client.close();
      if (await isOver(owner)) return;
    } catch {
      // It does not answer, or has gone meanwhile.
    }
    if (await isAlive(owner)) process.kill(Number(owner.split(':')[0]), 'SIGKILL');
  }

  private async record(key: string): Promise<SandboxRecord | undefined> {
    const state = await this.read(key);
    if (!state) return undefined;
    const { id, limits, createdAtMs, owner } = state;
    const gone: Probe = { state: 'gone', evidence: 'its supervisor has ended' };
    return { id, limits, createdAtMs, probe: (await isAlive(owner)) ? { state: 'running' } : gone };
  }

  private async read(key: string): Promise<State | undefined> {
    const path = join(this.options.dataDir, key, 'state.json');
    const text = await readFile(path, 'utf8').catch(missingIs(undefined));
    return text === undefined ? undefined : (JSON.parse(text) as State);
  }

  private directoryOf(id: SandboxId): string {
    return join(this.options.dataDir, keyOf(id));
  }
}

async function isOver(owner: string): Promise<boolean> {
  for (const until = Date.now() + ENDED_WITHIN_MS; await isAlive(owner); ) {
    if (Date.now() > until) return false;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return true;
}

const missingIs =
  <T>(value: T) =>
  (fault: NodeJS.ErrnoException): T => {
    if (fault.code === 'ENOENT') return value;
    throw fault;
  };
