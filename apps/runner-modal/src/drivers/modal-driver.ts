import { readFile } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import {
  type CallOptions,
  type CreateOptions,
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
  type SnapshotOptions,
  SupervisorClient,
} from '@vmux/runner-kit';
import type { Image } from 'modal';
import { openConnectPipe } from './connect-pipe';
import { GPUS, gpuOf } from './gpus';
import { type ListedSandbox, ModalApi, type ModalSettings, TERMINATED } from './modal-api';
import { messageOf } from './modal-faults';
import { ModalPipe } from './modal-pipe';
import { goneFromModal, ModalSnapshots } from './modal-snapshots';
import { idTags, limitTags, nameIn, nameOf, recordedIn, TAG } from './modal-tags';
import { bootCommand, PIPE_COMMAND, uploadCommand } from './supervisor-boot';
import { imageNamed } from './templates';

export interface ModalDriverSettings extends ModalSettings {
  readonly runnerId: string;
  readonly supervisorFile: string;
  /** Where it is written down which snapshots this runner has had made. */
  readonly snapshotsDirectory: string;
  /** How long a sandbox may stand still for a snapshot; half a minute without it. */
  readonly snapshotWithinMs?: number;
  /** For sessions that name no image. */
  readonly defaultImage: string;
  /** Whole seconds; Modal's longest without it. */
  readonly lifetimeMs?: number | undefined;
}

const LONGEST_LIFETIME_MS = 24 * 3600 * 1000;
/** So long before its end a sandbox is said to end: time for a checkpoint, and for another to take over. */
const WARNED_MS = 15 * 60 * 1000;
/** Modal counts physical cores, of two processors each. */
const CPUS_PER_CORE = 2;
const LEAST_CORES = 0.125;
const GREET_MS = 60_000;
const GREET_PAUSE_MS = 100;
const SHOWN_LOG = 500;
/** A day's sandboxes are all listed: their ends are asked for so many at a time. */
const ASKED_AT_ONCE = 16;
const UPLOAD_PIECE_BYTES = 512 * 1024;

/**
 * Sandboxes on Modal, GPUs among them. The supervisor is the entry point, put into the sandbox as a file
 * and reached over an exec's stdio. A sandbox is found by its name, which comes from the session's epoch
 * and instance: a create whose answer was lost is found again instead of made twice.
 */
export class ModalDriver implements SandboxDriver {
  readonly provider = 'modal';
  private readonly api: ModalApi;
  private readonly snapshots: ModalSnapshots;
  private readonly found = new Map<string, string>();
  private readonly making = new Set<string>();
  private readonly warnings = new Map<string, NodeJS.Timeout>();
  private warn: (id: SandboxId, endsAtMs: number) => void = () => undefined;
  private supervisor: Promise<Buffer> | undefined;

  constructor(private readonly settings: ModalDriverSettings) {
    this.api = new ModalApi(settings);
    this.snapshots = new ModalSnapshots(
      this.api,
      settings.snapshotsDirectory,
      settings.snapshotWithinMs,
    );
  }

  async capabilities(): Promise<DriverCapabilities> {
    const missing = {
      suspend: 'Modal cannot stop a sandbox without ending it: it is checkpointed and released',
      memorySnapshot: 'memory snapshots of Modal are experimental and not used',
      diskLimit: NO_DISK_LIMIT,
      checkpoint: NOT_ALONE,
    };
    if (!this.settings.tokenId || !this.settings.tokenSecret) {
      const reason = 'no Modal token: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET';
      return { available: false, reason, offered: [], missing };
    }
    try {
      const offered = ['gpu', 'fork', 'pty', 'previews', 'egress', 'build'] as const;
      // Sandboxes belong to the app: whoever has a token for it reaches them.
      const pool = await this.api.reach();
      return { available: true, reason: null, offered: [...offered], pool, missing, gpus: GPUS };
    } catch (error) {
      return { available: false, reason: messageOf(error), offered: [], missing };
    }
  }

  create(spec: SandboxSpec, options: CreateOptions = {}): Promise<void> {
    const from = imageNamed(spec.image ?? this.settings.defaultImage);
    const wanted = { from, build: spec.build ?? [] };
    const { onStage = () => undefined } = options;
    const image = () => this.api.image(wanted, (log) => onStage('building', lastLines(log)));
    return this.createFrom(spec, image, null, options);
  }

  async restore(
    spec: SandboxSpec,
    { ref }: NativeCheckpoint,
    options: CreateOptions = {},
  ): Promise<void> {
    const { image, sinceNs } = await this.snapshots.find(ref);
    await this.createFrom(spec, async () => image, { ref, sinceNs }, options);
  }

  private async createFrom(
    spec: SandboxSpec,
    imageFor: () => Promise<Image>,
    restored: { readonly ref: string; readonly sinceNs: bigint } | null,
    { signal, onStage = () => undefined }: CreateOptions,
  ): Promise<void> {
    const { id, limits, egress } = spec;
    checkId(id);
    if (spec.needsDiskLimit)
      throw new DriverRefused('unsupported', `${NO_DISK_LIMIT}: ask for no disk size`);
    const gpu = spec.gpu ? gpuOf(spec.gpu) : undefined;
    const name = nameOf(id);
    if (await this.api.find(name)) throw new DriverRefused('exists', 'the sandbox exists already');
    const image = await unlessAborted(imageFor(), signal);
    signal?.throwIfAborted();
    if (this.making.has(name)) throw new DriverRefused('exists', 'it is being made already');
    const createdAtMs = Date.now();
    const tags = {
      ...idTags(id),
      ...limitTags(limits),
      [TAG.runner]: this.settings.runnerId,
      ...(restored ? { [TAG.restored]: restored.ref } : {}),
    };
    this.making.add(name);
    if (gpu) onStage('queued', `waiting for ${gpu} on Modal`);
    const asked = this.api.create({
      name,
      image,
      command: bootCommand(id, limits.pids, restored?.sinceNs),
      cores: Math.max(LEAST_CORES, limits.cpus / CPUS_PER_CORE),
      memoryMiB: limits.memoryMiB,
      gpu,
      egress,
      timeoutMs: this.lifetimeMs,
      tags,
    });
    const creating = asked.catch((fault) => this.madeBefore(name, fault));
    creating.catch(() => undefined);
    let sandboxId: string | undefined;
    try {
      // A GPU may be queued for minutes, and the SDK cannot be told to stop waiting.
      sandboxId = await unlessAborted(creating, signal).catch((error) => {
        throw restored && error instanceof SandboxGone ? goneFromModal() : error;
      });
      onStage('starting', null);
      this.found.set(name, sandboxId);
      await this.upload(id, sandboxId, signal);
      await this.greet(id, signal);
      await this.api.setTags(sandboxId, { ...tags, [TAG.made]: '1' });
      this.warnBefore(id, createdAtMs + this.lifetimeMs);
    } catch (error) {
      const isMade = sandboxId !== undefined || !(error instanceof DriverRefused);
      if (isMade) await this.abandon(name, creating);
      throw error;
    } finally {
      this.making.delete(name);
    }
  }

  async adopt(id: SandboxId): Promise<SandboxRecord> {
    const listed = await this.api.list({ [TAG.session]: id.sessionId });
    const records = await this.recorded(listed);
    const record = records.find((one) => nameOf(one.id) === nameOf(id));
    if (!record) throw new SandboxGone('Modal has no such sandbox');
    if (record.probe.state === 'gone') throw new SandboxGone(record.probe.evidence);
    const { sandboxId, tags } = listed.find(({ tags }) => nameIn(tags) === nameOf(id)) ?? {};
    // From now on this runner finds it, and the one that had it does not.
    if (sandboxId && tags?.[TAG.runner] !== this.settings.runnerId)
      await this.api.setTags(sandboxId, { ...tags, [TAG.runner]: this.settings.runnerId });
    return record;
  }

  async list(): Promise<readonly SandboxRecord[]> {
    return this.recorded(await this.api.list({ [TAG.runner]: this.settings.runnerId }));
  }

  private async recorded(listed: readonly ListedSandbox[]): Promise<readonly SandboxRecord[]> {
    const records: SandboxRecord[] = [];
    for (let at = 0; at < listed.length; at += ASKED_AT_ONCE) {
      const some = listed.slice(at, at + ASKED_AT_ONCE);
      const found = await Promise.all(some.map((each) => this.recordOf(each)));
      records.push(...found.filter((record) => record !== undefined));
    }
    return records;
  }

  private async recordOf(listed: ListedSandbox): Promise<SandboxRecord | undefined> {
    const { sandboxId, createdAtMs, tags } = listed;
    const ours = recordedIn(tags);
    if (!ours || tags[TAG.destroyed]) return undefined;
    const ending = await this.api.ending(sandboxId);
    if (ending?.status === TERMINATED) return undefined;
    if (!ending) this.warnBefore(ours.id, createdAtMs + this.lifetimeMs);
    if (!tags[TAG.made] && !this.making.has(nameOf(ours.id)))
      return { ...ours, createdAtMs, probe: UNFINISHED };
    return { ...ours, createdAtMs, probe: probeOf(ending) };
  }

  async probe(id: SandboxId): Promise<Probe> {
    const sandboxId = await this.idOf(id);
    if (!sandboxId) return { state: 'gone', evidence: 'Modal has no such sandbox' };
    return probeOf(await this.api.ending(sandboxId));
  }

  async openPipe(id: SandboxId): Promise<Duplex> {
    const sandboxId = await this.running(id);
    try {
      return new ModalPipe(await this.api.exec(sandboxId, PIPE_COMMAND));
    } catch (error) {
      await this.running(id);
      throw error;
    }
  }

  async openDirectPipe(id: SandboxId, { signal }: CallOptions = {}): Promise<Duplex> {
    return openConnectPipe(this.api, await this.running(id), signal);
  }

  async suspend(): Promise<void> {
    throw new DriverRefused('unsupported', 'a sandbox on Modal cannot be suspended');
  }

  async resume(): Promise<void> {
    throw new DriverRefused('unsupported', 'a sandbox on Modal cannot be suspended');
  }

  async checkpoint(): Promise<NativeCheckpoint> {
    throw new DriverRefused('unsupported', NOT_ALONE);
  }

  async snapshot(id: SandboxId, { sinceNs, signal }: SnapshotOptions): Promise<NativeCheckpoint> {
    const taking = this.snapshots.take(id, () => this.running(id), sinceNs);
    return { ref: await unlessAborted(taking, signal), bytes: 0 };
  }

  checkpoints(): Promise<readonly { readonly ref: string; readonly sessionId: string }[]> {
    return this.snapshots.all();
  }

  forget(ref: string): Promise<void> {
    return this.snapshots.forget(ref);
  }

  onEnding(listener: (id: SandboxId, endsAtMs: number) => void): void {
    this.warn = listener;
  }

  async destroy(id: SandboxId): Promise<void> {
    const name = nameOf(id);
    clearTimeout(this.warnings.get(name));
    this.warnings.delete(name);
    const sandboxId = await this.idOf(id);
    this.found.delete(name);
    if (!sandboxId) return;
    const ending = await this.api.ending(sandboxId);
    if (!ending) await this.api.terminate(sandboxId);
    // It ended by itself: from now on nobody wants to hear of it.
    else if (ending.status !== TERMINATED)
      await this.api.setTags(sandboxId, { ...idTags(id), [TAG.destroyed]: '1' });
    this.api.release(sandboxId);
  }

  async close(): Promise<void> {
    for (const warning of this.warnings.values()) clearTimeout(warning);
    this.api.close();
  }

  private get lifetimeMs(): number {
    return this.settings.lifetimeMs ?? LONGEST_LIFETIME_MS;
  }

  private warnBefore(id: SandboxId, endsAtMs: number): void {
    const name = nameOf(id);
    clearTimeout(this.warnings.get(name));
    const inMs = Math.max(0, endsAtMs - WARNED_MS - Date.now());
    this.warnings.set(
      name,
      setTimeout(() => {
        this.warnings.delete(name);
        this.warn(id, endsAtMs);
      }, inMs),
    );
  }

  private async idOf(id: SandboxId): Promise<string | undefined> {
    const name = nameOf(id);
    const sandboxId = this.found.get(name) ?? (await this.api.find(name));
    if (sandboxId) this.found.set(name, sandboxId);
    return sandboxId;
  }

  private async running(id: SandboxId): Promise<string> {
    const sandboxId = await this.idOf(id);
    if (!sandboxId) throw new SandboxGone('Modal has no such sandbox');
    const probe = probeOf(await this.api.ending(sandboxId));
    if (probe.state === 'gone') throw new SandboxGone(probe.evidence);
    return sandboxId;
  }

  /** The SDK repeats a call whose answer was lost, and hears of what the first one made that it exists. */
  private async madeBefore(name: string, fault: unknown): Promise<string> {
    const isThere = fault instanceof DriverRefused && fault.reason === 'exists';
    const sandboxId = isThere ? await this.api.find(name) : undefined;
    if (!sandboxId) throw fault;
    return sandboxId;
  }

  /** Nothing in Modal's images is ours: the supervisor goes in as the input of an exec. */
  private async upload(
    id: SandboxId,
    sandboxId: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    this.supervisor ??= readFile(this.settings.supervisorFile);
    const content = await this.supervisor;
    const uploading = await unlessAborted(this.api.exec(sandboxId, uploadCommand(id)), signal);
    const writer = uploading.stdin.getWriter();
    for (let at = 0; at < content.length; at += UPLOAD_PIECE_BYTES) {
      signal?.throwIfAborted();
      await writer.write(content.subarray(at, at + UPLOAD_PIECE_BYTES));
    }
    await writer.close();
    const code = await unlessAborted(uploading.wait(), signal);
    if (code !== 0)
      throw new DriverUnavailable(`the supervisor could not be put in place (exit ${code})`);
  }

  /** Returns once the supervisor answers. */
  private async greet(id: SandboxId, signal: AbortSignal | undefined): Promise<void> {
    const deadline = Date.now() + GREET_MS;
    for (;;) {
      signal?.throwIfAborted();
      try {
        const client = await SupervisorClient.connect(await this.openPipe(id), { ...id, signal });
        client.close();
        return;
      } catch (error) {
        const mayCome = error instanceof SandboxError && error.next === 'retry';
        if (!mayCome || Date.now() > deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, GREET_PAUSE_MS));
      }
    }
  }

  /** Leaves nothing of a create that failed or was given up, however late Modal answers. */
  private async abandon(name: string, creating: Promise<string>): Promise<void> {
    this.found.delete(name);
    creating.then(
      (late) => this.api.terminate(late).catch(() => undefined),
      () => undefined,
    );
    const sandboxId = await this.api.find(name).catch(() => undefined);
    if (sandboxId && !(await this.api.ending(sandboxId))) await this.api.terminate(sandboxId);
  }
}

const NO_DISK_LIMIT = 'Modal takes no disk limit for a sandbox';
const NOT_ALONE = 'a snapshot of Modal is taken beside the portable form, at the same moment';

/** Whoever made it is gone, perhaps while it was queued: it may never get its supervisor. */
const UNFINISHED: Probe = { state: 'gone', evidence: 'on Modal: it was never finished' };

/** The end of a build's log, from a line's beginning. */
const lastLines = (log: string): string | null =>
  log.length > SHOWN_LOG ? log.slice(-SHOWN_LOG).replace(/^[^\n]*\n/, '') : log || null;

function probeOf(ending: { readonly status: number; readonly detail: string } | undefined): Probe {
  return ending ? { state: 'gone', evidence: `on Modal: ${ending.detail}` } : { state: 'running' };
}

function checkId({ sessionId, instance }: SandboxId): void {
  const plain = /^[A-Za-z0-9._-]{1,64}$/;
  if (!plain.test(sessionId) || !plain.test(instance) || instance.startsWith('.'))
    throw new DriverRefused('invalid', 'a sandbox is named by letters, digits, dots and dashes');
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  work.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
