import { mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, DriverUnavailable, type SandboxId } from '@vmux/runner-kit';
import type { Image } from 'modal';
import type { ModalApi } from './modal-api';

/** A snapshot, and from when on its files count as the workload's. */
export interface Snapshot {
  readonly imageId: string;
  readonly sinceNs: bigint;
}

interface Kept {
  readonly ref: string;
  readonly sessionId: string;
  readonly at: number;
}

const REF = /^(im-[A-Za-z0-9]{1,64})@(\d{1,19})$/;
/** Whatever becomes of those who know of it, an image goes after this time; the portable form stays. */
const KEPT_MS = 7 * 24 * 3600 * 1000;
/** The sandbox stands still meanwhile: what takes longer is done without. */
const WITHIN_MS = 30_000;
/** A sandbox that stood still for long in vain does not do so again before. */
const AFTER_A_LONG_FAILURE_MS = 10 * 60_000;
/** Of the time that there was: timers are not exact. */
const LONG = 0.9;

/**
 * The snapshots that this runner has had made. Modal lists nobody's images, so what is to be deleted with its
 * session is written down here, one small file for each. What nobody has written down goes by its lifetime.
 */
export class ModalSnapshots {
  private readonly waiting = new Map<string, number>();

  constructor(
    private readonly api: ModalApi,
    private readonly directory: string,
    private readonly withinMs = WITHIN_MS,
  ) {}

  /** One that comes too late is written down all the same: it goes with its session. */
  async take(
    { sessionId, instance }: SandboxId,
    running: () => Promise<string>,
    sinceNs: bigint,
  ): Promise<string> {
    const began = Date.now();
    for (const [waits, until] of this.waiting) if (until <= began) this.waiting.delete(waits);
    if (this.waiting.has(instance))
      throw new DriverRefused('unsupported', 'Modal took too long for a snapshot a while ago');
    const taking = async () => {
      const sandboxId = await running();
      const timeoutMs = Math.floor(began + this.withinMs - Date.now());
      if (timeoutMs <= 0) throw new DriverUnavailable('it is too late for the snapshot');
      const ref = `${await this.api.snapshot(sandboxId, { ttlMs: KEPT_MS, timeoutMs })}@${sinceNs}`;
      read(ref);
      await this.record({ ref, sessionId, at: began });
      return ref;
    };
    // Not only the snapshot has to come: calls to Modal have no deadline, and the sandbox stands still.
    return within(this.withinMs, taking()).catch((error) => {
      if (Date.now() - began >= LONG * this.withinMs)
        this.waiting.set(instance, Date.now() + AFTER_A_LONG_FAILURE_MS);
      throw error;
    });
  }

  /** Refuses one that Modal no longer has. */
  async find(ref: string): Promise<{ readonly image: Image; readonly sinceNs: bigint }> {
    const { imageId, sinceNs } = read(ref);
    const image = await this.api.imageOf(imageId);
    if (!image) throw goneFromModal();
    return { image, sinceNs };
  }

  /** The oldest first. */
  async all(): Promise<readonly Kept[]> {
    const kept: Kept[] = [];
    for (const ref of await this.refs()) {
      const text = await readFile(join(this.directory, ref), 'utf8').catch(() => '');
      const [, sessionId, at] = /^(\S+) (\d+)\n$/.exec(text) ?? [];
      // Half written: its runner was killed, and nobody was told of it.
      if (!sessionId || Date.now() - Number(at) > KEPT_MS) await this.strike(ref);
      else kept.push({ ref, sessionId, at: Number(at) });
    }
    return kept.sort((one, other) => one.at - other.at);
  }

  async forget(ref: string): Promise<void> {
    if (!REF.test(ref)) return;
    await this.api.deleteImage(read(ref).imageId);
    await this.strike(ref);
  }

  private async refs(): Promise<readonly string[]> {
    const names = await readdir(this.directory).catch((error) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    return names.filter((name) => REF.test(name));
  }

  private async record({ ref, sessionId, at }: Kept): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o700 });
    const file = await open(join(this.directory, ref), 'w', 0o600);
    try {
      await file.writeFile(`${sessionId} ${at}\n`);
      await file.datasync();
    } finally {
      await file.close();
    }
  }

  private async strike(ref: string): Promise<void> {
    await rm(join(this.directory, ref), { force: true });
  }
}

function within<T>(ms: number, work: Promise<T>): Promise<T> {
  work.catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new DriverUnavailable(`no snapshot within ${ms} ms`)), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

export const goneFromModal = (): DriverRefused =>
  new DriverRefused('unsupported', 'Modal no longer has the snapshot');

function read(ref: string): Snapshot {
  const [, imageId, since] = REF.exec(ref) ?? [];
  if (!imageId || !since) throw new DriverRefused('invalid', 'that is no snapshot of Modal');
  return { imageId, sinceNs: BigInt(since) };
}
