import { AsyncLocalStorage } from 'node:async_hooks';
import { DriverRefused } from '@vmux/runner-kit';
import type { App, Image, ModalClient } from 'modal';
import type { ClientMiddleware } from 'nice-grpc';
import { messageOf } from './modal-faults';

export interface WantedImage {
  /** A tag of a registry, or the id of an image of Modal's own. */
  readonly from: string;
  /** Lines for its shell, run on top of it. */
  readonly build: readonly string[];
}

type OnLog = (log: string) => void;

interface Building {
  readonly image: Promise<Image>;
  readonly listeners: Set<OnLog>;
  /** The end of what the build has said. */
  log: string;
  isDone: boolean;
}

const IMAGE_ID = /^im-[A-Za-z0-9]+$/;
const KEPT_LOG = 4_000;
/** Of a failure's message, which is cut at a thousand. */
const SHOWN_LOG = 600;
const SHOWN_REASON = 300;
const MAX_KNOWN = 1_000;

/** What a build says reaches its builder by the call that it comes from: the SDK itself drops it. */
const hearing = new AsyncLocalStorage<OnLog>();

export const buildLogs: ClientMiddleware = async function* (call, options) {
  if (!call.responseStream) return yield* call.next(call.request, options);
  const hear = hearing.getStore();
  for await (const response of call.next(call.request, options)) {
    if (hear) hear(logIn(response));
    yield response;
  }
};

function logIn(response: unknown): string {
  const { taskLogs } = response as { readonly taskLogs?: readonly { readonly data?: string }[] };
  return (taskLogs ?? []).map(({ data = '' }) => data).join('');
}

/** Images by what they are made of: each is built once, and again only when that failed. */
export class ModalImages {
  private readonly known = new Map<string, Building>();

  constructor(private readonly client: ModalClient) {}

  /** Hears the build, if there is one now. */
  async of(app: App, wanted: WantedImage, onLog: OnLog): Promise<Image> {
    const key = JSON.stringify([wanted.from, wanted.build]);
    const building = this.known.get(key) ?? this.begin(key, app, wanted);
    if (building.isDone) return building.image;
    onLog(building.log);
    building.listeners.add(onLog);
    try {
      return await building.image;
    } finally {
      building.listeners.delete(onLog);
    }
  }

  private begin(key: string, app: App, { from, build }: WantedImage): Building {
    const heard = (text: string) => {
      if (text === '') return;
      building.log = `${building.log}${text}`.slice(-KEPT_LOG);
      for (const tell of building.listeners) tell(building.log);
    };
    const building: Building = {
      image: hearing
        .run(heard, () => this.made(app, from, build))
        .catch((error) => {
          this.known.delete(key);
          throw build.length > 0 ? failure(error, building.log) : error;
        }),
      listeners: new Set(),
      log: '',
      isDone: false,
    };
    building.image.then(
      () => {
        building.isDone = true;
      },
      () => undefined,
    );
    this.known.set(key, building);
    for (const oldest of this.known.keys()) {
      if (this.known.size <= MAX_KNOWN) break;
      this.known.delete(oldest);
    }
    return building;
  }

  private async made(app: App, from: string, build: readonly string[]): Promise<Image> {
    const { images } = this.client;
    const base = IMAGE_ID.test(from) ? await images.fromId(from) : images.fromRegistry(from);
    const steps = build.map((line) => `RUN ${line}`);
    return base.dockerfileCommands(steps).build(app);
  }
}

/** What went wrong, and what the build said last; other faults pass as they are. */
function failure(error: unknown, log: string): unknown {
  const message = messageOf(error);
  if (!/^Image build for \S+ (failed|timed out)/.test(message)) return error;
  const reason = message
    .replace(/^Image build for \S+ /, '')
    .replace(/^failed with the exception:\s*/, 'failed: ')
    .trim();
  const last = log.trim().slice(-SHOWN_LOG);
  const detail = `the image's build ${reason.slice(0, SHOWN_REASON)}`;
  return new DriverRefused('invalid', last ? `${detail}\nIts last words:\n${last}` : detail, {
    cause: error,
  });
}
