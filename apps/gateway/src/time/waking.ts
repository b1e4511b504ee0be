import { randomUUID } from 'node:crypto';
import { timeLimit } from '@vmux/messaging';
import type { Caller } from '../application/key-ring';
import type { SessionCommands } from '../application/session-commands';
import type { SessionReader } from '../application/session-reader';
import { hasEnded, type SessionStatus, type SessionView } from '../application/session-view';
import { ApiError } from '../http/api-error';

export type WakeCause = 'attach' | 'preview';

/** A session that runs, and the sandbox that it runs in. */
export type Awake = SessionView & { readonly sandbox: NonNullable<SessionView['sandbox']> };

const AWAKE_WITHIN_MS = 60_000;
const MAX_TRIES = 5;

/**
 * Brings a session back for somebody who is here: resumes what is suspended, rehydrates what was released
 * or lost, and waits until it runs. Reading never calls this.
 */
export class Waking {
  constructor(
    private readonly sessions: Pick<SessionCommands, 'session' | 'ask'>,
    private readonly reader: Pick<SessionReader, 'waitFor'>,
    private readonly withinMs = AWAKE_WITHIN_MS,
  ) {}

  /** Waits a bounded time; a session that cannot run, or not in time, is an error that says why. */
  async awake(
    caller: Caller,
    sessionId: string,
    cause: WakeCause,
    signal: AbortSignal,
  ): Promise<Awake> {
    const within = AbortSignal.any([signal, timeLimit(this.withinMs)]);
    let view = await this.sessions.session(caller, sessionId);
    for (let tries = 0; ; ) {
      if (isAwake(view)) return view;
      if (hasEnded(view) || view.status === 'stopping') throw notRunning(view);
      const { message } = view;
      if (rests(view)) {
        if (tries++ === MAX_TRIES) throw notRunning(view);
        await this.wake(caller, sessionId, cause);
      }
      const settled = await this.reader.waitFor(
        sessionId,
        (seen) => (isAwake(seen) || !isComing(seen) ? seen : undefined),
        within,
      );
      if (!settled) throw tooLate(view);
      // Whoever asked hears why it failed; otherwise it has gone to rest again meanwhile.
      if (rests(settled) && settled.message !== message) throw notRunning(settled);
      view = settled;
    }
  }

  private async wake(caller: Caller, sessionId: string, cause: WakeCause): Promise<void> {
    const asking = {
      caller,
      operation: `WAKE /v1/sessions/${sessionId}`,
      clientKey: randomUUID(),
      requestId: randomUUID(),
      traceparent: null,
    };
    await this.sessions.ask(asking, sessionId, 'WakeSession', { cause });
  }
}

const isAwake = (view: SessionView): view is Awake =>
  view.status === 'running' &&
  view.sandbox !== null &&
  (view.operation === null || view.operation === 'checkpoint');

const isResting = ({ status }: SessionView): boolean =>
  status === 'suspended' || status === 'released' || status === 'lost';

const rests = (view: SessionView): boolean => isResting(view) && view.operation === null;

/** Something is under way that ends by itself, and the session runs or rests afterwards. */
const isComing = (view: SessionView): boolean =>
  view.status === 'starting' || (view.operation !== null && view.status !== 'stopping');

const NEXT: Readonly<Partial<Record<SessionStatus, string>>> = {
  starting: 'try again shortly',
  suspended: 'resume it with POST /v1/sessions/<id>/resume',
  released: 'bring it back with POST /v1/sessions/<id>/rehydrate',
  lost: 'bring it back with POST /v1/sessions/<id>/rehydrate',
};

const notRunning = ({ id, status, message }: SessionView): ApiError =>
  new ApiError(
    'not_running',
    `the session is ${status}${message ? ` (${message})` : ''}: it has no sandbox that runs`,
    NEXT[status] ?? 'create a new session',
    { sessionId: id, status },
  );

const tooLate = ({ id, status, operation }: SessionView): ApiError =>
  new ApiError(
    'not_running',
    `the session did not run in time: it is ${status}${operation ? ` (${operation})` : ''}`,
    'try again shortly',
    { sessionId: id, status },
  );
