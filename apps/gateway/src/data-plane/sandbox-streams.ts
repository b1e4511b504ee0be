import { setTimeout as sleep } from 'node:timers/promises';
import { Refusal } from '@vmux/events';
import { timeLimit } from '@vmux/messaging';
import {
  type OpenedStream,
  type SandboxRef,
  type TunnelAddress,
  TunnelRefused,
  type TunnelRequest,
  Tunnels,
  TunnelUnreachable,
} from '@vmux/tunnel';
import { execHasEnded } from '../application/exec-view';
import type { Caller } from '../application/key-ring';
import type { RunnerBoard } from '../application/runner-board';
import type { SessionCommands } from '../application/session-commands';
import type { SessionReader } from '../application/session-reader';
import type { SessionStatus, SessionView } from '../application/session-view';
import { ApiError } from '../http/api-error';
import type { WakeCause, Waking } from '../time/waking';

/** Where the bytes of a session go now. */
export interface Place {
  readonly sandbox: SandboxRef;
  readonly runnerId: string;
}

type WithoutSandbox<R> = R extends TunnelRequest ? Omit<R, 'sandbox'> : never;
export type SandboxRequest = WithoutSandbox<TunnelRequest>;

const START_WITHIN_MS = 30_000;
const HEARD_WITHIN_MS = 5_000;
const LOOK_EVERY_MS = 100;

/** Streams to the sandboxes of sessions: never through NATS, never in the history. */
export class SandboxStreams {
  private readonly tunnels = new Tunnels();

  constructor(
    private readonly sessions: Pick<SessionCommands, 'session' | 'exec'>,
    private readonly reader: Pick<SessionReader, 'waitFor'>,
    private readonly runners: Pick<RunnerBoard, 'list'>,
    private readonly waking: Pick<Waking, 'awake'>,
  ) {}

  /** The session's sandbox; one that is being made is waited for. */
  async sandbox(caller: Caller, sessionId: string, signal: AbortSignal): Promise<Place> {
    await this.sessions.session(caller, sessionId);
    const within = AbortSignal.any([signal, timeLimit(START_WITHIN_MS)]);
    const settled = (view: SessionView) => (isComing(view) ? undefined : view);
    const view = await this.reader.waitFor(sessionId, settled, within);
    if (!view) throw notRunning('starting', sessionId);
    if (view.status !== 'running' || !view.sandbox) throw notRunning(view.status, sessionId);
    const { epoch, instance, runnerId } = view.sandbox;
    return { sandbox: { sessionId, epoch, instance }, runnerId };
  }

  /** The session's sandbox, for somebody who is here: one that rests is woken. */
  async awake(
    caller: Caller,
    sessionId: string,
    cause: WakeCause,
    signal: AbortSignal,
  ): Promise<Place> {
    const { sandbox } = await this.waking.awake(caller, sessionId, cause, signal);
    const { epoch, instance, runnerId } = sandbox;
    return { sandbox: { sessionId, epoch, instance }, runnerId };
  }

  /** The sandbox in which the exec runs, woken if it rests; one that has just been issued is waited for. */
  async exec(
    caller: Caller,
    sessionId: string,
    execId: string,
    signal: AbortSignal,
  ): Promise<Place> {
    const asked = await this.sessions.exec(caller, sessionId, execId);
    if (execHasEnded(asked.exec)) throw new Refusal('exec_ended', 'the exec has ended', { execId });
    const place = await this.awake(caller, sessionId, 'attach', signal);
    const within = AbortSignal.any([signal, timeLimit(START_WITHIN_MS)]);
    const started = ({ execs }: SessionView) => {
      const exec = execs.get(execId);
      return exec && (exec.status === 'running' || execHasEnded(exec)) ? exec : undefined;
    };
    const exec = await this.reader.waitFor(sessionId, started, within);
    if (!exec) throw new Refusal('not_running', 'the exec has not started', { execId });
    if (execHasEnded(exec) || exec.epoch !== place.sandbox.epoch)
      throw new Refusal('exec_ended', 'the exec has ended', { execId });
    return place;
  }

  /** Does something in the session's sandbox. */
  async inSandbox<T>(
    caller: Caller,
    sessionId: string,
    signal: AbortSignal,
    work: (place: Place) => Promise<T>,
  ): Promise<T> {
    return within(() => this.sandbox(caller, sessionId, signal), work);
  }

  /** Does something in the sandbox of an exec. */
  async inExec<T>(
    caller: Caller,
    sessionId: string,
    execId: string,
    signal: AbortSignal,
    work: (place: Place) => Promise<T>,
  ): Promise<T> {
    return within(() => this.exec(caller, sessionId, execId, signal), work);
  }

  /** Given up when the signal aborts. */
  async open(place: Place, request: SandboxRequest, signal: AbortSignal): Promise<OpenedStream> {
    const { sandbox, runnerId } = place;
    const address = await this.addressOf(runnerId, signal);
    const stream = await this.tunnels.open(runnerId, address, { ...request, sandbox });
    const giveUp = () => stream.cancel();
    signal.addEventListener('abort', giveUp, { once: true });
    const settle = () => signal.removeEventListener('abort', giveUp);
    stream.result.then(settle, settle);
    if (signal.aborted) giveUp();
    return stream;
  }

  close(): void {
    this.tunnels.close();
  }

  /** A gateway that has just been started has not heard of every runner yet. */
  private async addressOf(runnerId: string, signal: AbortSignal): Promise<TunnelAddress> {
    for (let waitedMs = 0; waitedMs <= HEARD_WITHIN_MS; waitedMs += LOOK_EVERY_MS) {
      const found = this.runners.list().find(({ heartbeat }) => heartbeat.runnerId === runnerId);
      if (found?.heartbeat.tunnel) return found.heartbeat.tunnel;
      if (signal.aborted) break;
      await sleep(LOOK_EVERY_MS);
    }
    throw new TunnelUnreachable('it has not been heard of');
  }
}

async function within<T>(
  find: () => Promise<Place>,
  work: (place: Place) => Promise<T>,
): Promise<T> {
  const place = await find();
  try {
    return await work(place);
  } catch (fault) {
    throw await explained(fault, place, find);
  }
}

/** What is to be told of a fault: of a sandbox that was let go of it is what the history says by now. */
export async function explained(
  fault: unknown,
  { sandbox }: Place,
  find: () => Promise<Place>,
): Promise<unknown> {
  if (!isLetGo(fault)) return fault;
  try {
    const now = await find();
    if (now.sandbox.instance !== sandbox.instance) return fault;
    return new TunnelUnreachable('its runner does not have the sandbox now', { cause: fault });
  } catch (said) {
    return said;
  }
}

/** Said by a runner that does not have the sandbox any more; why not, it does not know. */
export const isLetGo = (fault: unknown): boolean =>
  fault instanceof TunnelRefused && fault.code === 'stale_sandbox';

const isComing = ({ status, operation }: SessionView): boolean =>
  status === 'starting' || (status === 'suspended' && operation === 'resume');

const NEXT: Readonly<Partial<Record<SessionStatus, string>>> = {
  starting: 'try again shortly',
  suspended: 'resume it with POST /v1/sessions/<id>/resume, then try again',
  released: 'bring it back with POST /v1/sessions/<id>/rehydrate, or run a command in it',
  lost: 'bring it back with POST /v1/sessions/<id>/rehydrate',
};

const notRunning = (status: SessionStatus, sessionId: string): ApiError =>
  new ApiError(
    'not_running',
    `the session is ${status}: it has no sandbox that runs`,
    NEXT[status] ?? 'create a new session',
    { sessionId, status },
  );
