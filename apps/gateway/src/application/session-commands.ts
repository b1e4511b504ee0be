import {
  type ClearEnv,
  type ClientCommandType,
  type CommandNamed,
  deriveExecId,
  deriveSignalId,
  type ExecSpec,
  isSessionId,
  Refusal,
  type SealedEnv,
  type SessionSpec,
  sessionIdOf,
} from '@vmux/events';
import type { KeyStore } from '@vmux/key-store';
import { type Answer, type Asking, type Commander, keyOf } from './commander';
import type { CreateKeys } from './create-keys';
import type { ExecView } from './exec-view';
import type { Caller } from './key-ring';
import { IndexUnavailable, type SessionIndex } from './session-index';
import type { SessionReader } from './session-reader';
import type { SessionView } from './session-view';

export interface NewSession {
  readonly name: string;
  readonly provider: string;
  readonly spec: Omit<SessionSpec, 'env'>;
  readonly env: ClearEnv | null;
  /** What the key is bound to. */
  readonly body: unknown;
}

export interface NewExec {
  readonly spec: Omit<ExecSpec, 'env'>;
  readonly env: ClearEnv | null;
  readonly body: unknown;
}

const MAX_ATTEMPTS = 20;

/** What clients may ask of sessions, each as one command. */
export class SessionCommands {
  constructor(
    private readonly commander: Commander,
    private readonly reader: SessionReader,
    private readonly index: SessionIndex,
    private readonly keys: KeyStore,
    private readonly createKeys: CreateKeys,
    private readonly liveSessions: number,
  ) {}

  /** Another owner's session is none. */
  async session(caller: Caller, sessionId: string): Promise<SessionView> {
    const view = isSessionId(sessionId) ? await this.reader.read(sessionId) : null;
    if (!view || view.owner !== caller.owner)
      throw new Refusal('session_not_found', 'you have no such session', {});
    if (view.status === 'deleted')
      throw new Refusal('session_deleted', `${sessionId} was deleted`, { sessionId });
    return view;
  }

  /**
   * For a command, which is decided on the session's head: a session never changes hands, so that what
   * was read of it before says whose it is, and what it is called. What became of it meanwhile the answer
   * says.
   */
  async own(caller: Caller, sessionId: string): Promise<SessionView> {
    const known = this.reader.known(sessionId);
    if (known?.owner === caller.owner && known.status !== 'deleted') return known;
    return this.session(caller, sessionId);
  }

  async exec(caller: Caller, sessionId: string, execId: string) {
    const view = await this.session(caller, sessionId);
    const exec = view.execs.get(execId);
    if (!exec) throw new Refusal('exec_not_found', 'the session has no such exec', { sessionId });
    return { view, exec } satisfies { view: SessionView; exec: ExecView };
  }

  /**
   * The same key finds the same session; an id that is another's moves on to the next attempt. Only what
   * is new has to be admitted.
   */
  async create(
    asking: Asking,
    wanted: NewSession,
    admit: () => Promise<void> = async () => {},
  ): Promise<Answer> {
    const key = keyOf(asking);
    const { owner } = asking.caller;
    const { name, provider, body } = wanted;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const sessionId = sessionIdOf(name, owner, key, attempt);
      const known = await this.reader.read(sessionId);
      if (known?.status === 'deleted' && known.owner === owner)
        throw new Refusal('session_deleted', `${sessionId} was deleted`, { sessionId });
      if (known && known.createdBy !== key) continue;
      if (!known) {
        await admit();
        await this.withinQuota(asking.caller);
        await this.createKeys.bind(key, owner, name);
      }
      const env = await this.sealed(sessionId, wanted.env);
      const digest = await this.digest(sessionId, body, wanted.env);
      const data = { name, attempt, provider, spec: { ...wanted.spec, env }, lineage: null };
      try {
        return await this.commander.send(asking, sessionId, 'CreateSession', data, digest);
      } catch (fault) {
        if (!(fault instanceof Refusal) || fault.code !== 'name_taken') throw fault;
      }
    }
    throw new Refusal('name_taken', `too many sessions are called "${name}"`, { name });
  }

  async issue(asking: Asking, sessionId: string, wanted: NewExec): Promise<Answer> {
    await this.own(asking.caller, sessionId);
    const execId = deriveExecId(sessionId, keyOf(asking));
    const env = await this.sealed(sessionId, wanted.env);
    const digest = await this.digest(sessionId, wanted.body, wanted.env);
    const data = { execId, spec: { ...wanted.spec, env } };
    return this.commander.send(asking, sessionId, 'IssueExec', data, digest);
  }

  async cancel(asking: Asking, sessionId: string, execId: string, graceMs: number) {
    await this.exec(asking.caller, sessionId, execId);
    return this.plain(asking, sessionId, 'CancelExec', { execId, graceMs });
  }

  async signal(asking: Asking, sessionId: string, execId: string, signal: string) {
    await this.exec(asking.caller, sessionId, execId);
    const signalId = deriveSignalId(sessionId, execId, keyOf(asking));
    return this.plain(asking, sessionId, 'SignalExec', { execId, signalId, signal });
  }

  stop(asking: Asking, sessionId: string, graceMs: number | null, force: boolean) {
    return this.ask(asking, sessionId, 'StopSession', { graceMs, force });
  }

  delete(asking: Asking, sessionId: string, force: boolean): Promise<Answer> {
    return this.ask(asking, sessionId, 'DeleteSession', { force });
  }

  /** Whatever is asked of a session as a whole. */
  async ask<T extends ClientCommandType>(
    asking: Asking,
    sessionId: string,
    type: T,
    data: CommandNamed<T>['data'],
    body: unknown = data,
  ): Promise<Answer> {
    await this.own(asking.caller, sessionId);
    return this.plain(asking, sessionId, type, data, body);
  }

  /** A command whose data are all that its request said, and hold no secrets. */
  private plain<T extends ClientCommandType>(
    asking: Asking,
    sessionId: string,
    type: T,
    data: CommandNamed<T>['data'],
    body: unknown = data,
  ): Promise<Answer> {
    const digest = this.commander.digestOf(body);
    return this.commander.send(asking, sessionId, type, data, digest);
  }

  private async sealed(sessionId: string, env: ClearEnv | null): Promise<SealedEnv | null> {
    return env && Object.keys(env).length > 0 ? this.keys.seal(sessionId, env) : null;
  }

  private digest(sessionId: string, body: unknown, env: ClearEnv | null): Promise<string> | string {
    return env && Object.keys(env).length > 0
      ? this.commander.keyedDigestOf(sessionId, body)
      : this.commander.digestOf(body);
  }

  private async withinQuota({ owner, liveSessions }: Caller): Promise<void> {
    const limit = liveSessions ?? this.liveSessions;
    const live = await this.index.live(owner).catch((fault: unknown) => {
      // A quota is a hint: while the list is away it does not keep anybody from working.
      if (fault instanceof IndexUnavailable) return [];
      throw fault;
    });
    if (live.length < limit) return;
    const sessions = live.map(({ id }) => id).slice(0, 100);
    throw new Refusal(
      'quota_exceeded',
      `you have ${live.length} live sessions of ${limit}: stop one with POST /v1/sessions/<id>/stop`,
      {
        limit,
        live: live.length,
        sessions,
        stop: sessions.map((id) => `POST /v1/sessions/${id}/stop`),
      },
    );
  }
}
