import { ServerError, Status } from 'nice-grpc';

/** What goes wrong on demand. Everything is off until it is asked for. */
export interface Faults {
  /** Every exec's output stream breaks after this many bytes, and again after as many more. */
  readonly dropOutputEveryBytes: number;
  /** So many of the next control-plane calls are answered RESOURCE_EXHAUSTED, */
  readonly throttleCalls: number;
  /** or UNAVAILABLE. */
  readonly unavailableCalls: number;
  /** New sandboxes wait this long before they are scheduled; with a GPU until `releaseGpus`. */
  readonly createDelayMs: number;
  /** So many of the next sandboxes are made, and nobody hears of it the first time. */
  readonly loseCreateAnswers: number;
  /** Every control-plane call takes this much longer. */
  readonly callDelayMs: number;
  /** So many of the next tags are refused as wrong. */
  readonly refuseTags: number;
  readonly queueGpus: boolean;
  /** No more sandboxes than these at once; 0: any number. */
  readonly quota: number;
  /** Every write to an exec's input takes this much longer, as it does over a distance, and so does what is
   * sent with a connect token. */
  readonly inputDelayMs: number;
  /** So many of the next snapshots come to nothing, */
  readonly failSnapshots: number;
  /** or are made, and nobody hears of it the first time; */
  readonly loseSnapshotAnswers: number;
  /** all of them take this much longer, */
  readonly snapshotDelayMs: number;
  /** and have a file that comes to be in the sandbox just before. */
  readonly strangeSnapshots: boolean;
  /** Router tokens are good for this long. */
  readonly routerTokenSeconds: number;
  /** Connect tokens are good for this long, and so is what was opened with one. */
  readonly connectTokenSeconds: number;
  /** So many of the next requests with connect tokens are refused, however good these are. */
  readonly refuseConnects: number;
}

export const NO_FAULTS: Faults = {
  dropOutputEveryBytes: 0,
  throttleCalls: 0,
  unavailableCalls: 0,
  createDelayMs: 0,
  loseCreateAnswers: 0,
  callDelayMs: 0,
  refuseTags: 0,
  queueGpus: false,
  quota: 0,
  inputDelayMs: 0,
  failSnapshots: 0,
  loseSnapshotAnswers: 0,
  snapshotDelayMs: 0,
  strangeSnapshots: false,
  routerTokenSeconds: 3600,
  connectTokenSeconds: 3600,
  refuseConnects: 0,
};

export class FaultBoard {
  private current: Faults = NO_FAULTS;
  private changed: (() => void)[] = [];
  /** How often an exec was given input: over a distance each takes a while. */
  inputCalls = 0;
  /** Of the control plane's calls: how many of each there were, and how many at once since faults were set. */
  readonly calls = { byName: {} as Record<string, number>, under: 0, mostAtOnce: 0 };
  /** Of requests with connect tokens: those let through, their bytes, and those refused. */
  readonly connects = { tokens: 0, opened: 0, refused: 0, bytesIn: 0, bytesOut: 0 };

  get faults(): Faults {
    return this.current;
  }

  set(faults: Partial<Faults>): void {
    this.current = { ...this.current, ...faults };
    this.calls.mostAtOnce = this.calls.under;
    for (const tell of this.changed.splice(0)) tell();
  }

  /** True so many times as was asked for. */
  takes(
    fault: 'failSnapshots' | 'loseSnapshotAnswers' | 'loseCreateAnswers' | 'refuseTags',
  ): boolean {
    const left = this.current[fault];
    if (left > 0) this.current = { ...this.current, [fault]: left - 1 };
    return left > 0;
  }

  async counted<T>(name: string, call: () => Promise<T>): Promise<T> {
    const { calls } = this;
    calls.byName[name] = (calls.byName[name] ?? 0) + 1;
    calls.under += 1;
    calls.mostAtOnce = Math.max(calls.mostAtOnce, calls.under);
    try {
      return await call();
    } finally {
      calls.under -= 1;
    }
  }

  nextChange(): Promise<void> {
    return new Promise((resolve) => this.changed.push(resolve));
  }

  /** Whether this request with a connect token is refused. */
  refusesConnect(): boolean {
    const { refuseConnects } = this.current;
    if (refuseConnects === 0) return false;
    this.current = { ...this.current, refuseConnects: refuseConnects - 1 };
    return true;
  }

  /** Called at the beginning of every control-plane call. */
  onCall(): void {
    const { throttleCalls, unavailableCalls } = this.current;
    if (throttleCalls > 0) {
      this.current = { ...this.current, throttleCalls: throttleCalls - 1 };
      throw new ServerError(Status.RESOURCE_EXHAUSTED, 'too many requests (injected)');
    }
    if (unavailableCalls > 0) {
      this.current = { ...this.current, unavailableCalls: unavailableCalls - 1 };
      throw new ServerError(Status.UNAVAILABLE, 'the service is away (injected)');
    }
  }
}

const fields = Object.keys(NO_FAULTS) as (keyof Faults)[];

/** Takes faults off the wire; throws what is wrong with them. */
export function parseFaults(value: unknown): Partial<Faults> {
  if (typeof value !== 'object' || value === null) throw new Error('faults are a JSON object');
  for (const [name, given] of Object.entries(value)) {
    const field = fields.find((known) => known === name);
    if (!field) throw new Error(`no fault ${name}: there are ${fields.join(', ')}`);
    if (typeof given !== typeof NO_FAULTS[field])
      throw new Error(`${name} is a ${typeof NO_FAULTS[field]}`);
  }
  return value as Partial<Faults>;
}
