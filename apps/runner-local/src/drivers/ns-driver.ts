import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import {
  type CallOptions,
  type CheckpointOptions,
  type DriverCapabilities,
  DriverUnavailable,
  type Hello,
  type NativeCheckpoint,
  type OpenedCheckpoint,
  type Probe,
  type SandboxDriver,
  SandboxGone,
  type SandboxId,
  type SandboxRecord,
  type SandboxSpec,
  SupervisorClient,
} from '@vmux/runner-kit';
import { removeUnusedBases } from './ns-base';
import { isTrial, trialSpec, tryNs } from './ns-capabilities';
import { NsFreezer, needFreezer } from './ns-cgroup';
import { NsCheckpoints, Settling } from './ns-checkpoint';
import { NsDisks, type NsStoreKind, sessionOfRef } from './ns-checkpoint-store';
import { notDelegated } from './ns-delegated';
import { dropUnusedFirewall } from './ns-firewall';
import type { NsDriverOptions, NsHost } from './ns-host';
import { connectTo } from './ns-launcher';
import { NsMaking } from './ns-making';
import { removedFrom } from './ns-removed';
import { checkSpec } from './ns-spec';
import {
  bootId,
  cgroupNameOf,
  checkId,
  isAlive,
  keyOf,
  NsStore,
  readIfThere,
  startTimeOf,
} from './ns-store';
import { isRoot, type NsUser, thisUser } from './ns-user';

export type { NsDriverOptions };

/** Sandboxes out of Linux namespaces, with no engine: native/ns-launcher does what needs system calls. */
export class NsDriver implements SandboxDriver {
  readonly provider = 'ns';
  readonly #options: Required<NsDriverOptions>;
  readonly #busy = new Map<string, Promise<unknown>>();
  #settling: Settling | undefined;
  readonly #making: NsMaking;
  #prepared: Promise<NsHost> | undefined;
  #capabilities: Promise<DriverCapabilities> | undefined;

  constructor(options: NsDriverOptions) {
    const resolvers = ['1.1.1.1', '9.9.9.9'];
    const store: NsStoreKind = 'auto';
    const plain = { images: {}, spoolMiB: 2048, cgroupParent: 'vmux', egress: false };
    const defaults = { ...plain, resolvers, store };
    this.#options = { ...defaults, ...options };
    this.#making = new NsMaking(this.#options);
  }

  capabilities({ signal }: CallOptions = {}): Promise<DriverCapabilities> {
    const { launcherPath, supervisorPath, egress } = this.#options;
    const trial = {
      driver: this,
      programs: [launcherPath, supervisorPath],
      egress,
      host: () => this.#prepare(),
    };
    this.#capabilities ??= tryNs(trial, signal).catch((fault) => {
      this.#capabilities = undefined;
      throw fault;
    });
    return this.#capabilities;
  }

  create(spec: SandboxSpec, { signal }: CallOptions = {}): Promise<void> {
    return this.#create(spec, null, signal);
  }

  async #create(spec: SandboxSpec, from: NativeCheckpoint | null, signal?: AbortSignal) {
    const { images, egress } = this.#options;
    checkSpec(spec, { images, egress, isRoot: isRoot() });
    const host = await this.#prepare();
    const greet = async () => (await this.#greet(spec.id, signal)).startedAtUs;
    await this.#alone(keyOf(spec.id), () => this.#making.make(spec, from, host, greet, signal));
  }

  async adopt(id: SandboxId, _options: CallOptions = {}): Promise<SandboxRecord> {
    const record = await this.#record(keyOf(id));
    if (!record) throw new SandboxGone('this runner has no record of it');
    if (record.probe.state === 'gone') throw new SandboxGone(record.probe.evidence);
    return record;
  }

  async list(_options: CallOptions = {}): Promise<readonly SandboxRecord[]> {
    const { store } = await this.#prepare();
    const records = await Promise.all((await store.keys()).map((key) => this.#record(key)));
    return records.filter((record) => record !== undefined).filter(({ id }) => !isTrial(id));
  }

  async probe(id: SandboxId, _options: CallOptions = {}): Promise<Probe> {
    const record = await this.#record(keyOf(id));
    return record?.probe ?? { state: 'gone', evidence: 'this runner has no record of it' };
  }

  async openPipe(id: SandboxId, { signal }: CallOptions = {}): Promise<Duplex> {
    checkId(id);
    const { store } = await this.#prepare();
    try {
      return await connectTo(join(store.directoryOf(keyOf(id)), 'sock'), signal);
    } catch (fault) {
      signal?.throwIfAborted();
      const probe = await this.probe(id);
      if (probe.state === 'gone') throw new SandboxGone(probe.evidence, { cause: fault });
      throw new DriverUnavailable('the supervisor takes no connection', { cause: fault });
    }
  }

  /** By a supervisor of its own outside, which has the spool and nothing else of the sandbox. */
  async openRemains(id: SandboxId, { signal }: CallOptions = {}): Promise<Duplex> {
    checkId(id);
    const { store } = await this.#prepare();
    const key = keyOf(id);
    await this.#alone(key, async () => {
      const state = await store.read(key);
      if (!state) throw new SandboxGone('this runner has no record of it');
      await this.#making.serveRemains(state, store, signal);
    });
    return connectTo(join(store.directoryOf(key), 'left'), signal);
  }

  suspend(id: SandboxId, { signal }: CallOptions = {}): Promise<void> {
    return this.#freeze(id, true, signal);
  }

  resume(id: SandboxId, { signal }: CallOptions = {}): Promise<void> {
    return this.#freeze(id, false, signal);
  }

  /** A clone of its disk, taken while it stands still; one that is suspended stays so. */
  async checkpoint(
    id: SandboxId,
    { name, signal }: CheckpointOptions = {},
  ): Promise<NativeCheckpoint> {
    const host = await this.#prepare();
    const { disks, store } = host;
    const key = keyOf(id);
    return this.#alone(key, async () => {
      await this.adopt(id);
      const state = await store.read(key);
      if (!state) throw new SandboxGone('this runner has no record of it');
      const directory = store.directoryOf(key);
      const sandbox = { state, directory, name };
      const kept = await this.#checkpoints(disks).take(sandbox, needFreezer(host), signal);
      this.#settling ??= new Settling(disks);
      this.#settling.later(kept.ref);
      return kept;
    });
  }

  restore(spec: SandboxSpec, from: NativeCheckpoint, { signal }: CallOptions = {}): Promise<void> {
    return this.#create(spec, from, signal);
  }

  async readCheckpoint<T>(
    from: NativeCheckpoint,
    read: (opened: OpenedCheckpoint) => Promise<T>,
    { signal }: CallOptions = {},
  ): Promise<T> {
    const { disks } = await this.#prepare();
    const kept = await disks.find(from.ref);
    const spec = { ...trialSpec(), image: kept?.image ?? null };
    const { id } = spec;
    await this.#create(spec, from, signal);
    try {
      const pipe = await this.openPipe(id, { signal });
      const client = await SupervisorClient.connect(pipe, { ...id, signal });
      try {
        return await read({ id, client, takenAtMs: kept?.at ?? 0 });
      } finally {
        client.close();
      }
    } finally {
      await this.destroy(id);
    }
  }

  async forget(ref: string): Promise<void> {
    await (await this.#prepare()).disks.drop(ref);
  }

  async checkpoints(): Promise<readonly { readonly ref: string; readonly sessionId: string }[]> {
    const refs = await (await this.#prepare()).disks.refs();
    return refs.map((ref) => ({ ref, sessionId: sessionOfRef(ref) }));
  }

  #checkpoints(disks: NsDisks): NsCheckpoints {
    return new NsCheckpoints(disks, this.#options.launcherPath);
  }

  async removed(id: SandboxId, { signal }: CallOptions = {}): Promise<readonly string[]> {
    checkId(id);
    const { store } = await this.#prepare();
    const state = await store.read(keyOf(id));
    if (!state) throw new SandboxGone('this runner has no record of it');
    return removedFrom(this.#options.launcherPath, state, store.directoryOf(keyOf(id)), signal);
  }

  async destroy(id: SandboxId, _options: CallOptions = {}): Promise<void> {
    checkId(id);
    const host = await this.#prepare();
    const key = keyOf(id);
    await this.#alone(key, () => this.#making.remove(key, host));
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#busy.values());
    await this.#settling?.close();
    await (await this.#prepared)?.disks.close();
    if (isRoot()) await dropUnusedFirewall();
  }

  #prepare(): Promise<NsHost> {
    this.#prepared ??= this.#open().catch((fault) => {
      this.#prepared = undefined;
      throw fault;
    });
    return this.#prepared;
  }

  async #open(): Promise<NsHost> {
    const { dataDir, launcherPath } = this.#options;
    const store = await NsStore.open(dataDir);
    const user = await thisUser(launcherPath, dataDir);
    const disks = user.isRoot
      ? await NsDisks.open(dataDir, this.#options.store)
      : NsDisks.without(dataDir, 'checkpoints of its own need root');
    await store.sweep();
    await disks.sweep(new Set(await store.keys()));
    const used = new Set<string>();
    const standing: string[] = [];
    for (const key of await store.keys()) {
      const state = await store.read(key);
      // Nobody asked for a trial, so nobody would ever destroy one that a killed driver left.
      if (state && isTrial(state.id) && !(await isAlive(await store.ownerOf(state.slot))))
        await this.#making.remove(key, { store, disks });
      else {
        used.add(state?.generation ?? '');
        standing.push(key);
      }
    }
    await removeUnusedBases(this.#making.bases(user), used);
    const freezer = await this.#freezerOf(user);
    const none = user.isRoot ? 'this machine has no cgroup freezer' : notDelegated;
    const whyNoFreezer = freezer ? undefined : none;
    if (freezer)
      for (const key of standing) await NsCheckpoints.letGoOn(key, store.directoryOf(key), freezer);
    if (user.isRoot) await dropUnusedFirewall();
    return { user, store, freezer, whyNoFreezer, disks };
  }

  async #freezerOf({ isRoot: mayAll, delegated }: NsUser): Promise<NsFreezer | undefined> {
    const { cgroupParent } = this.#options;
    if (mayAll) return NsFreezer.find(cgroupParent);
    return delegated ? NsFreezer.below(delegated.root, cgroupParent) : undefined;
  }

  async #record(key: string): Promise<SandboxRecord | undefined> {
    const { store } = await this.#prepare();
    const state = await store.read(key);
    if (!state) return undefined;
    const { id, limits, createdAtMs, restoredFrom = null } = state;
    const probe = await this.#look(store.directoryOf(key), key);
    return { id, limits, createdAtMs, probe, restoredFrom };
  }

  async #look(directory: string, key: string): Promise<Probe> {
    const text = readIfThere(join(directory, 'pid')) ?? '';
    const [pid, ticks, boot] = text.trim().split(' ');
    if (!pid) return { state: 'gone', evidence: 'it never started' };
    if (boot !== (await bootId())) return { state: 'gone', evidence: 'the machine was restarted' };
    if ((await startTimeOf(Number(pid))) !== Number(ticks))
      return { state: 'gone', evidence: `its first process (${pid}) has ended` };
    const { freezer } = await this.#prepare();
    return { state: (await freezer?.isFrozen(cgroupNameOf(key))) ? 'suspended' : 'running' };
  }

  async #freeze(id: SandboxId, frozen: boolean, signal?: AbortSignal): Promise<void> {
    const key = keyOf(id);
    const host = await this.#prepare();
    await this.#alone(key, async () => {
      await this.adopt(id);
      await needFreezer(host).set(cgroupNameOf(key), frozen, signal);
    });
  }

  /** Proves that the supervisor answers; says what it complained of when it does not. */
  async #greet(id: SandboxId, signal?: AbortSignal): Promise<Hello> {
    try {
      const client = await SupervisorClient.connect(await this.openPipe(id, { signal }), {
        ...id,
        signal,
      });
      const { hello } = client;
      client.close();
      return hello;
    } catch (fault) {
      signal?.throwIfAborted();
      const log = join((await this.#prepare()).store.directoryOf(keyOf(id)), 'supervisor.log');
      const said = (await readFile(log, 'utf8').catch(() => '')).slice(-500).trim();
      throw new DriverUnavailable(`the supervisor did not come up (${said || 'it said nothing'})`, {
        cause: fault,
      });
    }
  }

  /** One change at a time for each sandbox. */
  async #alone<T>(key: string, run: () => Promise<T>): Promise<T> {
    const before = this.#busy.get(key) ?? Promise.resolve();
    const mine = before.then(run, run);
    this.#busy.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#busy.get(key) === mine) this.#busy.delete(key);
    }
  }
}
