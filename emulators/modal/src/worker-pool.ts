import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasEnded, type SandboxDriver } from '@vmux/runner-kit';
import { Box } from './box';
import type { FaultBoard } from './faults';
import { type ImageShelf, writeJson } from './image-shelf';
import {
  type CreateRequest,
  type Result,
  type SnapshotRequest,
  STATUS,
  type StatusNumber,
  type Tag,
} from './wire';

/** What survives the emulator, as a sandbox on Modal survives whoever asked for it. */
interface Remembered {
  readonly sandboxId: string;
  readonly taskId: string;
  readonly appId: string;
  readonly createdAt: number;
  readonly timeoutSecs: number;
  readonly name: string;
  readonly isV2: boolean;
  readonly tags: readonly Tag[];
  readonly gpu: string;
  readonly imageId: string;
  readonly scheduled: boolean;
  readonly result: Result | null;
}

export interface Emulated extends Remembered {
  readonly box: Box;
}

const DEFAULT_MEMORY_MIB = 1024;
const DISK_MIB = 4096;
const PIDS = 1024;

/** Every sandbox that this emulator was ever asked for. */
export class WorkerPool {
  private readonly sandboxes = new Map<string, Emulated>();
  private readonly finished = new Map<string, AbortController>();
  private readonly changes = new Set<() => void>();
  private readonly snapshots = new Map<string, Promise<string>>();

  constructor(
    private readonly driver: SandboxDriver,
    private readonly images: ImageShelf,
    private readonly dir: string,
    private readonly board: FaultBoard,
    private readonly log: (message: string) => void,
  ) {}

  /** Finds again what an earlier process left running. */
  async open(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    for (const file of await readdir(this.dir)) {
      if (!file.startsWith('sb-') || !file.endsWith('.json')) continue;
      const text = await readFile(join(this.dir, file), 'utf8');
      const remembered = JSON.parse(text) as Remembered;
      const box = new Box(this.driver, boxIdOf(remembered.sandboxId));
      this.sandboxes.set(remembered.sandboxId, { ...remembered, box });
      if (remembered.result === null) {
        if (remembered.scheduled) this.watch(remembered.sandboxId);
        else await this.finish(remembered.sandboxId, STATUS.initFailure, 1, 'never scheduled');
      }
    }
  }

  get all(): readonly Emulated[] {
    return [...this.sandboxes.values()];
  }

  find(sandboxId: string): Emulated | undefined {
    return this.sandboxes.get(sandboxId);
  }

  byTask(taskId: string): Emulated | undefined {
    return this.all.find((sandbox) => sandbox.taskId === taskId);
  }

  named(name: string, isV2: boolean, alsoFinished: boolean): Emulated | undefined {
    const named = this.all.filter((sandbox) => sandbox.name === name && sandbox.isV2 === isV2);
    const running = named.find(({ result }) => result === null);
    return running ?? (alsoFinished ? named.at(-1) : undefined);
  }

  /** Returns at once, as Modal does; the sandbox is scheduled when there is a worker for it. */
  async create({ appId, definition, tags }: CreateRequest, isV2: boolean): Promise<Emulated> {
    if (!definition) throw new Error('no definition');
    const sandboxId = isV2 ? `sb-${randomBytes(16).toString('hex')}` : `sb-${base62(22)}`;
    const { memoryMb, memoryMbMax, milliCpu, gpuConfig } = definition.resources ?? {
      memoryMb: 0,
      memoryMbMax: 0,
      milliCpu: 0,
      gpuConfig: undefined,
    };
    const emulated: Emulated = {
      sandboxId,
      taskId: `ta-${base62(22)}`,
      appId,
      createdAt: Date.now() / 1000,
      timeoutSecs: definition.timeoutSecs,
      name: definition.name ?? '',
      isV2,
      tags,
      gpu: gpuConfig ? `${gpuConfig.gpuType}:${gpuConfig.count}` : '',
      imageId: definition.imageId,
      scheduled: false,
      result: null,
      box: new Box(this.driver, boxIdOf(sandboxId)),
    };
    await this.keep(emulated);
    const start = async () => {
      await this.queued(emulated);
      const limits = {
        // A core has two processors.
        cpus: (2 * (milliCpu || 125)) / 1000,
        memoryMiB: memoryMbMax || memoryMb || DEFAULT_MEMORY_MIB,
        diskMiB: DISK_MIB,
        pids: PIDS,
      };
      const snapshot = this.images.diskOf(definition.imageId);
      await emulated.box.create({ limits, image: null, egress: false, gpu: null }, snapshot);
      const { entrypointArgs: argv, workdir: cwd } = definition;
      await emulated.box.start({ argv, cwd, env: {} });
      // It may have been terminated meanwhile.
      if (this.find(sandboxId)?.result) return emulated.box.destroy();
      await this.change(sandboxId, { scheduled: true });
      this.watch(sandboxId);
    };
    const starting = start().catch(async (fault: Error) => {
      this.log(`${sandboxId} could not be started: ${fault.message}`);
      await emulated.box.destroy();
      await this.finish(sandboxId, STATUS.initFailure, 1, fault.message);
    });
    if (isV2) await starting;
    return emulated;
  }

  /** An image of a sandbox's files as they are now; asked for again it is the image of then. */
  snapshot({ box }: Emulated, { snapshotId, ttlSeconds }: SnapshotRequest): Promise<string> {
    const take = async () => {
      const imageId = `im-${base62(22)}`;
      await this.images.keep(imageId, await box.snapshot(), ttlSeconds);
      return imageId;
    };
    const taken = this.snapshots.get(snapshotId) ?? take();
    this.snapshots.set(snapshotId, taken);
    taken.catch(() => this.snapshots.delete(snapshotId));
    return taken;
  }

  async setTags(sandboxId: string, tags: readonly Tag[]): Promise<void> {
    await this.change(sandboxId, { tags });
  }

  async terminate(sandboxId: string): Promise<void> {
    const sandbox = this.find(sandboxId);
    if (!sandbox || sandbox.result) return;
    await this.finish(sandboxId, STATUS.terminated, 137, '');
    await sandbox.box.destroy();
  }

  /** The worker goes away and takes the sandbox with it; the exit code that remains says nothing. */
  async lose(sandboxId: string, status: StatusNumber, exitcode: number): Promise<void> {
    const sandbox = this.find(sandboxId);
    if (!sandbox) throw new Error(`no sandbox ${sandboxId}`);
    await sandbox.box.destroy();
    await this.finish(sandboxId, status, exitcode, 'the worker was lost');
  }

  /** Resolves when something about any sandbox has changed, or after the time. */
  async nextChange(timeoutMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const tell = () => {
        clearTimeout(timer);
        this.changes.delete(tell);
        resolve();
      };
      const timer = setTimeout(tell, timeoutMs);
      this.changes.add(tell);
    });
  }

  /** Lets go of everything; sandboxes go on. */
  close(): void {
    for (const stopping of this.finished.values()) stopping.abort();
  }

  private async queued({ sandboxId, gpu }: Emulated): Promise<void> {
    const { createDelayMs } = this.board.faults;
    if (createDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, createDelayMs));
    while (gpu && this.board.faults.queueGpus && !this.find(sandboxId)?.result)
      await Promise.race([this.board.nextChange(), this.nextChange(1_000)]);
    if (this.find(sandboxId)?.result) throw new Error('terminated while it was queued');
  }

  private watch(sandboxId: string): void {
    const sandbox = this.find(sandboxId);
    if (!sandbox) return;
    const stopping = new AbortController();
    this.finished.set(sandboxId, stopping);
    const leftMs = (sandbox.createdAt + sandbox.timeoutSecs) * 1000 - Date.now();
    const timer = setTimeout(
      () => {
        this.finish(sandboxId, STATUS.timeout, 124, 'the time is over')
          .then(() => sandbox.box.destroy())
          .catch((fault: Error) => this.log(fault.message));
      },
      Math.max(0, Math.min(leftMs, 2 ** 31 - 1)),
    );
    stopping.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    sandbox.box.mainEnded(stopping.signal).then(
      async (exec) => {
        if (stopping.signal.aborted) return;
        if (!exec || !hasEnded(exec) || exec.outcome.kind === 'lost')
          await this.finish(sandboxId, STATUS.internalFailure, 0, 'the worker was lost');
        else {
          const code = exec.outcome.kind === 'exited' ? exec.outcome.code : 137;
          const status = code === 0 ? STATUS.success : STATUS.failure;
          await this.finish(sandboxId, status, code, '');
        }
        await sandbox.box.destroy();
      },
      (fault: Error) => {
        if (!stopping.signal.aborted) this.log(`${sandboxId}: ${fault.message}`);
      },
    );
  }

  private async finish(
    sandboxId: string,
    status: StatusNumber,
    exitcode: number,
    exception: string,
  ): Promise<void> {
    if (this.find(sandboxId)?.result) return;
    await this.change(sandboxId, { result: { status, exitcode, exception } });
    this.finished.get(sandboxId)?.abort();
    this.finished.delete(sandboxId);
  }

  private async change(sandboxId: string, change: Partial<Remembered>): Promise<void> {
    const sandbox = this.find(sandboxId);
    if (!sandbox) throw new Error(`no sandbox ${sandboxId}`);
    await this.keep({ ...sandbox, ...change });
    for (const tell of [...this.changes]) tell();
  }

  private async keep(sandbox: Emulated): Promise<void> {
    this.sandboxes.set(sandbox.sandboxId, sandbox);
    const { box: _, ...remembered } = sandbox;
    await writeJson(this.dir, sandbox.sandboxId, remembered);
  }
}

const boxIdOf = (sandboxId: string) => ({
  sessionId: 'modal-0000',
  epoch: 1,
  instance: sandboxId,
});

const ALPHABET = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';
const base62 = (length: number): string =>
  Array.from(randomBytes(length), (byte) => ALPHABET[byte % ALPHABET.length]).join('');
