import type { Duplex } from 'node:stream';
import {
  type CallOptions,
  type Capability,
  type DriverCapabilities,
  DriverRefused,
  type NativeCheckpoint,
  type Probe,
  type SandboxDriver,
  type SandboxId,
  type SandboxRecord,
  type SandboxSpec,
} from '@vmux/runner-kit';
import { instanceTypeFor } from '../../../../workers/cloudflare/src/instance-types';
import {
  type About,
  type CheckpointTaken,
  type CreateBody,
  type Found,
  faultOfName,
  type Listed,
  type Notice,
  pathOf,
} from '../../../../workers/cloudflare/src/wire';
import { type WorkerAddress, WorkerClient } from './worker-client';

export interface CloudflareDriverSettings {
  readonly runnerId: string;
  /** Null when it is not set: the provider is then listed as unavailable. */
  readonly worker: { readonly url: string; readonly key: string } | null;
}

/** How long what the Worker says of itself is taken for true. */
const knownForMs = 30_000;

export const NO_WORKER =
  'no Cloudflare Worker is set: deploy workers/cloudflare and set CLOUDFLARE_WORKER_URL and CLOUDFLARE_WORKER_KEY_FILE';

const missing: DriverCapabilities['missing'] = {
  gpu: 'Cloudflare containers have no GPU: choose a GPU provider',
  build: 'a Cloudflare container has the image of its Worker',
  suspend: 'a Cloudflare container cannot be frozen: it runs or is lost',
  memorySnapshot: 'a Cloudflare container’s memory cannot be saved',
  fork: 'a Cloudflare container cannot be forked: fork from a checkpoint',
  diskLimit: 'a Cloudflare disk has the size of its instance type',
};

/** Sandboxes as Cloudflare containers, each behind a Durable Object of our own Worker (workers/cloudflare). */
export class CloudflareDriver implements SandboxDriver {
  readonly provider = 'cloudflare';
  private readonly worker: WorkerClient | undefined;
  /** The Worker hands a sandbox over to whichever runner adopts it. */
  private readonly pool: string | undefined;
  private tellEnding: (id: SandboxId, endsAtMs: number) => void = () => undefined;
  /** Creates that failed and are not known to have left nothing. */
  private readonly undone = new Map<string, SandboxId>();
  private known: { readonly about: Promise<About>; readonly untilMs: number } | undefined;

  constructor({ worker, runnerId }: CloudflareDriverSettings) {
    const address: WorkerAddress | null = worker && { ...worker, runnerId };
    this.worker = address ? new WorkerClient(address) : undefined;
    this.pool = address ? new URL(address.url).host : undefined;
  }

  async capabilities({ signal }: CallOptions = {}): Promise<DriverCapabilities> {
    const unavailable = (reason: string) => ({ available: false, reason, offered: [], missing });
    if (!this.worker) return unavailable(NO_WORKER);
    try {
      const { checkpoints, egress } = await this.about(signal);
      const offered: Capability[] = ['pty', 'previews'];
      const lacking: Record<string, string> = { ...missing };
      if (checkpoints) offered.push('checkpoint');
      else lacking.checkpoint = 'the Worker has no bucket: bind one as BACKUP_BUCKET';
      if (egress) offered.push('egress');
      else lacking.egress = 'the emulator gives its sandboxes no network';
      return { available: true, reason: null, offered, pool: this.pool, missing: lacking };
    } catch (fault) {
      signal?.throwIfAborted();
      return unavailable(fault instanceof Error ? fault.message : String(fault));
    }
  }

  /** What the Worker says of itself. */
  about(signal?: AbortSignal): Promise<About> {
    const nowMs = Date.now();
    if (!this.known || this.known.untilMs < nowMs) {
      const about = this.client().ask<About>({ method: 'GET', path: '/v1/about', signal });
      void about.then(() => this.undone.forEach((id) => void this.undo(id))).catch(() => undefined);
      this.known = { about, untilMs: nowMs + knownForMs };
      about.catch(() => {
        this.known = undefined;
      });
    }
    return this.known.about;
  }

  async create(spec: SandboxSpec, options: CallOptions = {}): Promise<void> {
    await this.make(spec, null, options);
  }

  async restore(
    spec: SandboxSpec,
    from: NativeCheckpoint,
    options: CallOptions = {},
  ): Promise<void> {
    await this.make(spec, from.ref, options);
  }

  async adopt(id: SandboxId, { signal }: CallOptions = {}): Promise<SandboxRecord> {
    const path = `${this.pathOf(id)}/adopt`;
    return this.client().ask<Listed>({ method: 'POST', path, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<readonly SandboxRecord[]> {
    return this.client().ask<Listed[]>({ method: 'GET', path: '/v1/sandboxes', signal });
  }

  async probe(id: SandboxId, { signal }: CallOptions = {}): Promise<Probe> {
    return this.client().ask<Found>({ method: 'GET', path: this.pathOf(id), signal });
  }

  async openPipe(id: SandboxId, { signal }: CallOptions = {}): Promise<Duplex> {
    const onNotice = (text: string) => {
      const endsAtMs = endingIn(text);
      if (endsAtMs !== undefined) this.tellEnding(id, endsAtMs);
    };
    return this.client().open(`${this.pathOf(id)}/pipe`, onNotice, signal);
  }

  onEnding(listener: (id: SandboxId, endsAtMs: number) => void): void {
    this.tellEnding = listener;
  }

  async suspend(_id: SandboxId, _options: CallOptions = {}): Promise<void> {
    throw new DriverRefused('unsupported', missing.suspend ?? '');
  }

  async resume(_id: SandboxId, _options: CallOptions = {}): Promise<void> {
    throw new DriverRefused('unsupported', missing.suspend ?? '');
  }

  async checkpoint(id: SandboxId, { signal }: CallOptions = {}): Promise<NativeCheckpoint> {
    const path = `${this.pathOf(id)}/checkpoint`;
    return this.client().ask<CheckpointTaken>({ method: 'POST', path, signal });
  }

  async destroy(id: SandboxId, { signal }: CallOptions = {}): Promise<void> {
    await this.client().ask({ method: 'DELETE', path: this.pathOf(id), signal });
  }

  async close(): Promise<void> {}

  private async make(
    spec: SandboxSpec,
    restoreFrom: string | null,
    { signal }: CallOptions,
  ): Promise<void> {
    const path = this.pathOf(spec.id);
    const { limits, egress, gpu, image } = spec;
    if (gpu !== null) throw new DriverRefused('unsupported', missing.gpu ?? '');
    if (image !== null)
      throw new DriverRefused(
        'unsupported',
        'a Cloudflare container’s image is deployed with the Worker: leave the image out',
      );
    const { instanceTypes, egress: hasEgress } = await this.about(signal);
    if (egress && !hasEgress)
      throw new DriverRefused('unsupported', 'the emulator gives its sandboxes no network');
    const type = instanceTypeFor(limits, instanceTypes);
    if ('refused' in type) throw new DriverRefused('unsupported', type.refused);
    const body: CreateBody = { limits, egress, restoreFrom };
    try {
      await this.client().ask({ method: 'PUT', path, body, signal });
    } catch (fault) {
      // Refused is refused: nothing was made. Anything else may have made it, unheard.
      if (!(fault instanceof DriverRefused)) await this.undo(spec.id);
      throw fault;
    }
  }

  /** At once, or when the Worker answers again. */
  private async undo(id: SandboxId): Promise<void> {
    this.undone.set(id.instance, id);
    await this.destroy(id).then(
      () => void this.undone.delete(id.instance),
      () => {
        this.known = undefined;
      },
    );
  }

  private pathOf(id: SandboxId): string {
    const fault = faultOfName(id);
    if (fault) throw new DriverRefused('invalid', fault);
    return pathOf(id);
  }

  private client(): WorkerClient {
    if (!this.worker) throw new DriverRefused('unsupported', NO_WORKER);
    return this.worker;
  }
}

/** From inside the sandbox, hence not to be trusted with more than its own end. */
function endingIn(text: string): number | undefined {
  try {
    const { notice, deadlineAtMs }: Partial<Notice> = JSON.parse(text);
    const isSane = Number.isSafeInteger(deadlineAtMs) && Number(deadlineAtMs) > 0;
    return notice === 'evicting' && isSane ? deadlineAtMs : undefined;
  } catch {
    return undefined;
  }
}
