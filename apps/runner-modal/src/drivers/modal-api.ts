import { type App, type Image, ModalClient, NotFoundError, type Sandbox } from 'modal';
import { translated } from './modal-faults';
import { buildLogs, ModalImages, type WantedImage } from './modal-images';

export interface ModalSettings {
  readonly tokenId: string;
  readonly tokenSecret: string;
  /** Of the Modal app that holds all sandboxes of this runner. */
  readonly appName: string;
  /** Another server than Modal's own: the emulator. */
  readonly serverUrl?: string;
}

export interface CreateSandbox {
  readonly name: string;
  readonly image: Image;
  readonly command: readonly string[];
  readonly cores: number;
  readonly memoryMiB: number;
  readonly gpu: string | undefined;
  readonly egress: boolean;
  readonly timeoutMs: number;
  readonly tags: Readonly<Record<string, string>>;
}

export interface ListedSandbox {
  readonly sandboxId: string;
  readonly createdAtMs: number;
  readonly tags: Readonly<Record<string, string>>;
}

/** How a sandbox ended, in Modal's own words; `poll()` and `wait()` of the SDK turn a lost worker into 0. */
export type Ending = { readonly status: number; readonly detail: string };

/** Control-plane calls have no deadline of their own, and throttling is retried without end. */
const MOST_THROTTLE_SECONDS = 30;
/** A sandbox lives 24 hours at most: what is older ended long ago. */
const OLDEST_LISTED_MS = 25 * 3600 * 1000;

/** Everything that is said to Modal; the only file that uses the SDK's raw client. */
export class ModalApi {
  private readonly client: ModalClient;
  private app: Promise<App> | undefined;
  private readonly images: ModalImages;
  private readonly attached = new Map<string, Promise<Sandbox>>();

  constructor(private readonly settings: ModalSettings) {
    const { tokenId, tokenSecret, serverUrl } = settings;
    // The SDK takes its server from nowhere else.
    if (serverUrl) process.env.MODAL_SERVER_URL = serverUrl;
    this.client = new ModalClient({
      tokenId,
      tokenSecret,
      maxThrottleWaitSecs: MOST_THROTTLE_SECONDS,
      logLevel: 'error',
      grpcMiddleware: [buildLogs],
    });
    this.images = new ModalImages(this.client);
  }

  /** Throws unless Modal answers and accepts the token. Returns the app's id, which no other app has. */
  async reach(): Promise<string> {
    const { appId } = await this.call(() => this.theApp());
    return appId;
  }

  /** Built if it has to be, which may take minutes; hears what the build says. */
  image(wanted: WantedImage, onLog: (log: string) => void): Promise<Image> {
    return this.call(async () => this.images.of(await this.theApp(), wanted, onLog));
  }

  /** Returns its id. With a GPU it resolves only once there is one, which may take minutes. */
  create(asked: CreateSandbox): Promise<string> {
    return this.call(async () => {
      const app = await this.theApp();
      const sandbox = await this.client.sandboxes.create(app, asked.image, {
        name: asked.name,
        command: [...asked.command],
        cpu: asked.cores,
        cpuLimit: asked.cores,
        memoryMiB: asked.memoryMiB,
        memoryLimitMiB: asked.memoryMiB,
        ...(asked.gpu ? { gpu: asked.gpu } : {}),
        blockNetwork: !asked.egress,
        timeoutMs: asked.timeoutMs,
        tags: { ...asked.tags },
      });
      this.attached.set(sandbox.sandboxId, Promise.resolve(sandbox));
      return sandbox.sandboxId;
    });
  }

  /** By name, also one that has ended. */
  find(name: string): Promise<string | undefined> {
    return this.call(async () => {
      const { appName } = this.settings;
      for (const params of [{ includeTerminated: true }, {}]) {
        try {
          const { sandboxId } = await this.client.sandboxes.fromName(appName, name, params);
          return sandboxId;
        } catch (error) {
          if (!(error instanceof NotFoundError)) throw error;
        }
      }
      return undefined;
    });
  }

  /** Nothing while it runs. */
  ending(sandboxId: string): Promise<Ending | undefined> {
    return this.call(async () => {
      const request = { sandboxId, timeout: 0 };
      const { result } = isV1(sandboxId)
        ? await this.client.cpClient.sandboxWait(request)
        : await this.client.cpClient.sandboxWaitV2(request);
      return result?.status
        ? { status: result.status, detail: result.exception || statusName(result.status) }
        : undefined;
    });
  }

  /** Those with these tags, finished ones too. */
  list(tags: Readonly<Record<string, string>>): Promise<readonly ListedSandbox[]> {
    return this.call(async () => {
      const { appId } = await this.theApp();
      const wanted = Object.entries(tags).map(([tagName, tagValue]) => ({ tagName, tagValue }));
      const found: ListedSandbox[] = [];
      const oldest = Date.now() - OLDEST_LISTED_MS;
      for (let beforeTimestamp: number | undefined; ; ) {
        const { sandboxes } = await this.client.cpClient.sandboxListV2({
          appId,
          beforeTimestamp,
          includeFinished: true,
          tags: wanted,
        });
        for (const { id, createdAt, tags: all } of sandboxes) {
          const named = all.map(({ tagName, tagValue }) => [tagName, tagValue]);
          const createdAtMs = Math.round(createdAt * 1000);
          found.push({ sandboxId: id, createdAtMs, tags: Object.fromEntries(named) });
        }
        const last = sandboxes.at(-1);
        if (!last || last.createdAt * 1000 < oldest) return found;
        beforeTimestamp = last.createdAt;
      }
    });
  }

  setTags(sandboxId: string, tags: Readonly<Record<string, string>>): Promise<void> {
    return this.call(async () => (await this.attach(sandboxId)).setTags({ ...tags }));
  }

  exec(sandboxId: string, argv: readonly string[]) {
    return this.call(async () =>
      (await this.attach(sandboxId)).exec([...argv], { mode: 'binary' }),
    );
  }

  /** Where that port is reached by HTTP and WebSocket from outside, and the token that opens it. */
  connectToken(sandboxId: string, port: number): Promise<{ url: string; token: string }> {
    return this.call(async () => (await this.attach(sandboxId)).createConnectToken({ port }));
  }

  terminate(sandboxId: string): Promise<void> {
    return this.call(async () => {
      await (await this.attach(sandboxId)).terminate();
      this.release(sandboxId);
    });
  }

  /** Of so many sandboxes something is held here. */
  get held(): number {
    return this.attached.size;
  }

  /** Lets go of what is held here for a sandbox that has ended: its connection too. */
  release(sandboxId: string): void {
    const attached = this.attached.get(sandboxId);
    this.attached.delete(sandboxId);
    attached?.then((sandbox) => sandbox.detach()).catch(() => undefined);
  }

  /** The file system as an image of Modal's own; its id. A repeat within the call is the same snapshot. */
  snapshot(
    sandboxId: string,
    limits: { readonly ttlMs: number; readonly timeoutMs: number },
  ): Promise<string> {
    return this.call(async () => {
      const sandbox = await this.attach(sandboxId);
      return (await sandbox.snapshotFilesystem(limits)).imageId;
    });
  }

  /** Undefined when Modal has no such image, or has it no more. */
  imageOf(imageId: string): Promise<Image | undefined> {
    return this.call(() => this.client.images.fromId(imageId).catch(unlessNotFound));
  }

  /** Deleting twice is deleting. */
  deleteImage(imageId: string): Promise<void> {
    return this.call(() => this.client.images.delete(imageId).catch(unlessNotFound));
  }

  close(): void {
    for (const sandboxId of [...this.attached.keys()]) this.release(sandboxId);
    this.client.close();
  }

  private theApp(): Promise<App> {
    this.app ??= this.client.apps
      .fromName(this.settings.appName, { createIfMissing: true })
      .catch((error) => {
        this.app = undefined;
        throw error;
      });
    return this.app;
  }

  private attach(sandboxId: string): Promise<Sandbox> {
    const known = this.attached.get(sandboxId) ?? this.client.sandboxes.fromId(sandboxId);
    this.attached.set(sandboxId, known);
    return known;
  }

  private async call<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw translated(error);
    }
  }
}

function unlessNotFound(error: unknown): undefined {
  if (!(error instanceof NotFoundError)) throw error;
}

/** V1 sandboxes, those with a GPU, have ids of another shape. */
const isV1 = (sandboxId: string): boolean => /^sb-[0-9A-Za-z]{22}$/.test(sandboxId);

const STATUS_NAMES: Readonly<Record<number, string>> = {
  1: 'its entry point ended',
  2: 'its entry point failed',
  3: 'terminated',
  4: 'its lifetime is over',
  5: 'it could not be started',
  6: 'an internal failure of the worker',
  7: 'idle for too long',
  8: 'evicted',
};
export const TERMINATED = 3;
const statusName = (status: number): string => STATUS_NAMES[status] ?? `status ${status}`;
