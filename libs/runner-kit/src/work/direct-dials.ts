import type { Duplex } from 'node:stream';
import { timeLimit } from '@vmux/messaging';
import type { SandboxDriver, SandboxId } from '../driver';
import { SandboxError, SupervisorRefused } from '../errors';
import { SupervisorClient } from '../supervisor-client';

export interface DirectDialsSettings {
  readonly id: SandboxId;
  readonly driver: Pick<SandboxDriver, 'openDirectPipe'>;
  readonly log: (message: string, facts?: Readonly<Record<string, unknown>>) => void;
  readonly waitMs?: number;
  readonly openWithinMs?: number;
  readonly answerWithinMs?: number;
  readonly idleMs?: number;
  readonly firstPauseMs?: number;
}

/** Whoever dials first waits so long for the direct pipe, and then goes the usual way. */
const WAIT_MS = 3_000;
const OPEN_WITHIN_MS = 20_000;
/** A pipe may be dead for a while before anybody notices. */
const ANSWER_WITHIN_MS = 5_000;
/** Unused for so long it is closed: nothing is held for a sandbox that nobody looks at. */
const IDLE_MS = 300_000;
const FIRST_PAUSE_MS = 30_000;
const LONGEST_PAUSE_MS = 15 * 60_000;
/** One that breaks earlier, twice in a row, counts as one that cannot be opened. */
const HELD_MS = 60_000;

interface Direct {
  readonly client: SupervisorClient;
  readonly openedAtMs: number;
  inUse: number;
  idle: NodeJS.Timeout | undefined;
}

/**
 * Connections to the ports of one sandbox: over the driver's direct pipe where it has one, and over the
 * usual one while that cannot be had. Which way is decided before a byte is carried.
 */
export class DirectDials {
  private direct: Promise<Direct | undefined> | undefined;
  /** Until then whoever dials waits for the pipe that is being opened. */
  private awaitedUntilMs = 0;
  private notBeforeMs = 0;
  private pauseMs: number;
  private brokeEarly = false;
  private readonly stopping = new AbortController();

  constructor(private readonly settings: DirectDialsSettings) {
    this.pauseMs = settings.firstPauseMs ?? FIRST_PAUSE_MS;
  }

  async dial(port: number, usual: SupervisorClient, signal: AbortSignal): Promise<Duplex> {
    const direct = await this.soon();
    signal.throwIfAborted();
    if (!direct) return usual.dial(port, { signal });
    this.take(direct);
    const late = timeLimit(this.settings.answerWithinMs ?? ANSWER_WITHIN_MS);
    try {
      const stream = await direct.client.dial(port, { signal: AbortSignal.any([signal, late]) });
      stream.once('close', () => this.release(direct));
      return stream;
    } catch (fault) {
      this.release(direct);
      const isAnswer = fault instanceof SupervisorRefused || signal.aborted;
      // The pipe broke, or seems dead, and nothing was carried: the usual one is as good.
      if (isAnswer || !(fault instanceof SandboxError || late.aborted)) throw fault;
      return usual.dial(port, { signal });
    }
  }

  stop(): void {
    this.stopping.abort(new Error('the sandbox is let go of'));
    this.direct?.then((direct) => direct?.client.close());
  }

  private async soon(): Promise<Direct | undefined> {
    if (!this.settings.driver.openDirectPipe || this.stopping.signal.aborted) return undefined;
    if (!this.direct) {
      if (Date.now() < this.notBeforeMs) return undefined;
      this.awaitedUntilMs = Date.now() + (this.settings.waitMs ?? WAIT_MS);
      this.direct = this.open();
    }
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), Math.max(0, this.awaitedUntilMs - Date.now()));
    });
    return Promise.race([this.direct, late]).finally(() => clearTimeout(timer));
  }

  /** Resolves with nothing when it cannot be opened, and then not again for a while. */
  private async open(): Promise<Direct | undefined> {
    const { id, driver } = this.settings;
    const late = timeLimit(this.settings.openWithinMs ?? OPEN_WITHIN_MS);
    const signal = AbortSignal.any([this.stopping.signal, late]);
    try {
      const opening = driver.openDirectPipe?.(id, { signal });
      if (!opening) return undefined;
      const pipe = await unlessAborted(opening, signal);
      const client = await SupervisorClient.connect(pipe, { ...id, signal });
      if (this.stopping.signal.aborted) client.close();
      const direct: Direct = { client, openedAtMs: Date.now(), inUse: 0, idle: undefined };
      this.rest(direct);
      client.ended.then((reason) => this.ended(direct, reason));
      return direct;
    } catch (fault) {
      this.direct = undefined;
      this.putOff(fault);
      return undefined;
    }
  }

  private ended(direct: Direct, reason: SandboxError): void {
    this.direct = undefined;
    const isLate = Date.now() - direct.openedAtMs >= HELD_MS;
    const isIdle = direct.idle === undefined && direct.inUse === 0;
    clearTimeout(direct.idle);
    const early = !isLate && !isIdle;
    if (!early) this.pauseMs = this.settings.firstPauseMs ?? FIRST_PAUSE_MS;
    if (early && this.brokeEarly) this.putOff(reason);
    else this.brokeEarly = early;
  }

  private putOff(fault: unknown): void {
    if (this.stopping.signal.aborted) return;
    const forMs = this.pauseMs;
    this.notBeforeMs = Date.now() + forMs;
    this.brokeEarly = false;
    this.pauseMs = Math.min(2 * forMs, LONGEST_PAUSE_MS);
    const reason = fault instanceof Error ? fault.message : String(fault);
    this.settings.log('ports are not reached directly', { ...this.settings.id, reason, forMs });
  }

  private take(direct: Direct): void {
    direct.inUse += 1;
    clearTimeout(direct.idle);
    direct.idle = undefined;
  }

  private release(direct: Direct): void {
    direct.inUse -= 1;
    if (direct.inUse === 0) this.rest(direct);
  }

  private rest(direct: Direct): void {
    direct.idle = setTimeout(() => {
      direct.idle = undefined;
      direct.client.close();
    }, this.settings.idleMs ?? IDLE_MS).unref();
  }
}

/** A provider may never answer; a pipe that comes later is of no use. */
function unlessAborted(opening: Promise<Duplex>, signal: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal.reason);
      opening.then((pipe) => pipe.destroy()).catch(() => undefined);
    };
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    opening.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
