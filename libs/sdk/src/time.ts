import { VmuxError } from './errors';
import { historyEvents } from './history';
import type { HistoryEvent, SessionInfo } from './types';
import type { CallOptions, ChangeOptions, Vmux } from './vmux';

/** A kept state of a session's files. */
export interface CheckpointInfo {
  readonly id: string;
  readonly status: 'requested' | 'taken' | 'failed';
  readonly name: string | null;
  readonly at: string;
  /** Why it failed. */
  readonly message: string | null;
  /** Of all its files. */
  readonly bytes: number | null;
  /** What it added to the store. */
  readonly newBytes: number | null;
  /** Whether it can be restored on any provider, and not only where it was taken. */
  readonly portable: boolean;
  /** The provider that has a fast form of it. */
  readonly native: string | null;
}

export interface WaitOptions extends ChangeOptions {
  /** False: answered as soon as it is recorded, before it is done. */
  readonly wait?: boolean;
}

export interface RestoreOptions extends WaitOptions {
  /** Also onto another base than the checkpoint was taken on. */
  readonly allowBaseChange?: boolean;
}

export interface RehydrateOptions extends RestoreOptions {
  /** The last one without it. */
  readonly checkpointId?: string;
  readonly provider?: string;
  /** Run again what ran since the checkpoint, as far as each ends as it did before. */
  readonly replay?: boolean;
  /** Give up a sandbox that cannot be reached. */
  readonly force?: boolean;
}

export interface Rehydrated {
  /** How many commands were to be run again. */
  readonly replayed: number;
  /** Where the replay ended early: a command that did not end as it did before. */
  readonly stopped: Readonly<Record<string, unknown>> | null;
}

export interface ForkOptions extends ChangeOptions {
  /** A new one is taken without it. */
  readonly checkpointId?: string;
  /** A revision of the history: from the last checkpoint before it. */
  readonly at?: number;
  readonly count?: number;
  /** Of the children; the session's without it. */
  readonly name?: string;
  readonly provider?: string;
}

/** A session and what was forked from it. */
export interface ForkTree {
  readonly id: string;
  readonly status: string;
  readonly provider: string;
  readonly emulated: boolean;
  readonly createdAt: string;
  /** Where it was forked from its parent. */
  readonly checkpointId: string | null;
  readonly forks: readonly ForkTree[];
}

interface Asked {
  readonly revision: number;
}

/** What can be done to a session's time and place. Each resolves when it is done, or rejects when it failed. */
export class SessionTime {
  private readonly path: string;

  constructor(
    private readonly vmux: Vmux,
    private readonly id: string,
  ) {
    this.path = `/v1/sessions/${encodeURIComponent(id)}`;
  }

  /** Freezes its processes where they are; the next command wakes it. */
  async suspend({ wait = true, ...options }: WaitOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/suspend`, options);
    if (wait) await this.settled(['suspended'], options.signal);
  }

  /** Wakes it, whether it is suspended or has no sandbox at the moment. */
  async resume({ wait = true, ...options }: WaitOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/resume`, options);
    if (wait) await this.settled(['running'], options.signal);
  }

  /** Keeps its files as they are now. */
  async checkpoint({
    name,
    wait = true,
    ...options
  }: WaitOptions & { readonly name?: string } = {}): Promise<CheckpointInfo> {
    const asked = await this.ask<{ checkpointId: string }>('checkpoints', { name }, options);
    const isOurs = ({ data }: HistoryEvent) => checkpointIdOf(data) === asked.checkpointId;
    if (wait)
      await this.outcome(asked, ['CheckpointTaken'], ['CheckpointFailed'], options.signal, isOurs);
    const found = (await this.checkpoints(options)).find(({ id }) => id === asked.checkpointId);
    if (!found) throw new VmuxError('checkpoint_not_found', 'the checkpoint is not listed', null);
    return found;
  }

  /** The oldest first. */
  async checkpoints({ signal }: CallOptions = {}): Promise<readonly CheckpointInfo[]> {
    const info = await this.info(signal);
    return (info.checkpoints ?? []) as readonly CheckpointInfo[];
  }

  /** Goes back to a checkpoint in a new sandbox. Logs and history go on. */
  async rollback(checkpointId: string, options: RestoreOptions = {}): Promise<void> {
    const { allowBaseChange, wait = true, ...change } = options;
    const asked = await this.ask('rollback', { checkpointId, allowBaseChange }, change);
    if (wait) await this.outcome(asked, ['RolledBack'], ['RestoreFailed'], change.signal);
  }

  /** New sessions with this one's files; resolves with their ids once they exist. */
  async fork({ signal, idempotencyKey, ...body }: ForkOptions = {}): Promise<readonly string[]> {
    const asked = await this.ask<{ forkId: string; checkpointId: string }>('fork', body, {
      signal,
      idempotencyKey,
    });
    const children: string[] = [];
    const count = body.count ?? 1;
    for await (const event of this.after(asked, signal)) {
      const { type, data } = event;
      if (type === 'CheckpointFailed' && data.checkpointId === asked.checkpointId)
        throw failed(event);
      if (type === 'Forked' && data.forkId === asked.forkId) children.push(String(data.child));
      if (children.length === count) break;
    }
    return children;
  }

  /** To another provider, with its files; its id, logs and history stay the same. */
  async move(provider: string, options: RestoreOptions = {}): Promise<void> {
    const { allowBaseChange, wait = true, ...change } = options;
    const asked = await this.ask('move', { provider, allowBaseChange }, change);
    if (wait) await this.outcome(asked, ['Moved'], ['MoveFailed'], change.signal);
  }

  /** Gives a session without a sandbox a new one, from its last checkpoint. */
  async rehydrate(options: RehydrateOptions = {}): Promise<Rehydrated> {
    const { wait = true, signal, idempotencyKey, ...body } = options;
    const change = { signal, idempotencyKey };
    const asked = await this.ask<{ replayed: number }>('rehydrate', body, change);
    if (!wait) return { replayed: asked.replayed, stopped: null };
    const done = asked.replayed > 0 ? ['ReplayFinished', 'ReplayStopped'] : ['SandboxStarted'];
    const end = await this.outcome(asked, done, ['RestoreFailed'], signal);
    const stopped = end.type === 'ReplayStopped' ? end.data : null;
    return { replayed: asked.replayed, stopped };
  }

  /** The tree of forks that it belongs to, from the first session on. */
  tree({ signal }: CallOptions = {}): Promise<ForkTree> {
    return this.vmux.call('GET', `${this.path}/tree`, { signal });
  }

  private ask<T = object>(
    verb: string,
    body: object,
    { signal, idempotencyKey }: ChangeOptions,
  ): Promise<T & Asked> {
    return this.vmux.call('POST', `${this.path}/${verb}`, { body, signal, idempotencyKey });
  }

  private info(signal: AbortSignal | undefined): Promise<SessionInfo> {
    return this.vmux.call('GET', this.path, { signal });
  }

  private after({ revision }: Asked, signal: AbortSignal | undefined) {
    return historyEvents(this.vmux, this.id, { from: revision + 1, follow: true, signal });
  }

  private async outcome(
    asked: Asked,
    done: readonly string[],
    notDone: readonly string[],
    signal: AbortSignal | undefined,
    isOurs: (event: HistoryEvent) => boolean = () => true,
  ): Promise<HistoryEvent> {
    for await (const event of this.after(asked, signal)) {
      if (done.includes(event.type) && isOurs(event)) return event;
      if (isEnd(event) || (notDone.includes(event.type) && isOurs(event))) throw failed(event);
    }
    throw new VmuxError('session_deleted', 'the session was deleted meanwhile', null);
  }

  /** Waits for a status with nothing under way; one that it cannot come to any more is an error. */
  private async settled(
    statuses: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    let info = await this.info(signal);
    if (isSettled(info)) return this.expect(info, statuses);
    for await (const _ of this.after(info, signal)) {
      info = await this.info(signal);
      if (isSettled(info)) return this.expect(info, statuses);
    }
  }

  private expect({ status, message }: SessionInfo, statuses: readonly string[]): void {
    if (statuses.includes(status)) return;
    throw new VmuxError('failed', `the session is ${status}${message ? `: ${message}` : ''}`, null);
  }
}

const isSettled = ({ status, operation }: SessionInfo): boolean =>
  operation === null && status !== 'starting' && status !== 'stopping';

const checkpointIdOf = ({ checkpoint, checkpointId }: HistoryEvent['data']): unknown =>
  typeof checkpoint === 'object' && checkpoint !== null && 'checkpointId' in checkpoint
    ? checkpoint.checkpointId
    : checkpointId;

const isEnd = ({ type }: HistoryEvent): boolean =>
  type === 'SessionStopped' || type === 'SessionFailed' || type === 'SessionDeleted';

const failed = ({ type, data }: HistoryEvent): VmuxError => {
  const code = type.replace(/(?<=.)([A-Z])/g, '_$1').toLowerCase();
  const message = typeof data.message === 'string' ? data.message : `${type} came first`;
  return new VmuxError(code, message, 'see the history of the session');
};
