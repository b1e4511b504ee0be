import type { EventStore } from '@vmux/event-store';
import { decode, type Recorded, sessionStream } from '@vmux/events';
import type { SandboxId } from '@vmux/runner-kit';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';
import { Copies } from './copies';
import { checkExecs, type SessionWork } from './exec-check';
import {
  epochsFence,
  execsOnce,
  type History,
  inWords,
  type Law,
  nothingLost,
  requestsEnd,
  shortest,
} from './laws';
import type { Faults } from './nemesis';
import type { Operation } from './operations';
import { eventsOf } from './store-reads';
import { type TreeFacts, treesFollow, withCheckpointsOf } from './tree-law';
import { checkVerbs } from './verb-check';
import type { Script } from './workload';

export interface Violation {
  readonly law: string;
  readonly what: string;
  /** The shortest history that shows it. */
  readonly history?: readonly string[];
}

interface ExecStatus {
  readonly id: string;
  readonly status: string;
  readonly exit: object | null;
}

/** What has not come to its end. */
interface Open {
  readonly session: string;
  readonly what: string;
  readonly execId: string | null;
}

const LAST_EVENTS = 15;
const QUIET_WITHIN_MS = 10_000;

/** Judges what clients saw by what the history, the sandboxes and the copies say. */
export class Checker {
  readonly violations: Violation[] = [];
  private readonly histories = new Map<string, History>();

  constructor(
    private readonly cast: Cast,
    private readonly client: PatientClient,
    private readonly script: Script,
    private readonly faults: Faults,
    private readonly store: EventStore,
  ) {}

  private get sessions(): readonly string[] {
    return [...this.script.sessions, ...this.script.time.sessions];
  }

  /** Resolves when every exec and every request has its outcome; says how long that took. */
  async settled(timeoutMs: number): Promise<number> {
    const began = Date.now();
    for (;;) {
      const open = await this.open();
      if (open.length === 0) return Date.now() - began;
      if (Date.now() - began > timeoutMs) {
        for (const { session, what, execId } of open)
          await this.addStuck(
            session,
            `is not settled: ${what}`,
            ({ event }) =>
              !event.type.startsWith('Exec') || JSON.stringify(event.data).includes(execId ?? '\0'),
          );
        return Date.now() - began;
      }
      await new Promise((next) => setTimeout(next, 100));
    }
  }

  /** With what happened to it last. */
  async addStuck(session: string, what: string, isTold = (_: Recorded) => true): Promise<void> {
    const history = (await this.historyOf(session)).filter(isTold).slice(-LAST_EVENTS);
    this.violations.push({
      ...{ law: '7 converges', what: `${session} ${what}` },
      history: history.map(inWords),
    });
  }

  async check(): Promise<void> {
    for (const session of this.sessions)
      this.histories.set(session, await this.quietHistoryOf(session));
    for (const session of this.script.sessions)
      await checkExecs(this.client, this.workOf(session), (law, what, operation) =>
        operation ? this.addAbout(operation, law, what) : this.add(law, what),
      );
    await this.checkLaws();
    checkVerbs(this.script.time, this.histories, (law, what) => this.add(law, what));
    const { cast, client, store, sessions, script } = this;
    const { watches, secrets } = script;
    const copies = { cast, client, store, sessions, watches, secrets };
    await new Copies(copies, (law, what, history) =>
      this.violations.push({ law, what, history: history?.map(inWords) }),
    ).check();
  }

  /** Every sandbox that any of the sessions ever had. */
  async sandboxes(): Promise<SandboxId[]> {
    const found: SandboxId[] = [...this.script.time.deletedSandboxes];
    for (const sessionId of this.sessions)
      for (const { event } of await this.historyOf(sessionId))
        if (event.type === 'SandboxStarted') {
          const { epoch, instance } = event.data;
          found.push({ sessionId, epoch, instance });
        }
    return found;
  }

  private async open(): Promise<Open[]> {
    const kinds = new Map(this.script.operations.map(({ execId, kind }) => [execId, kind]));
    const open: Open[] = [];
    for (const session of this.sessions) {
      const add = (what: string, execId: string | null = null) =>
        open.push({ session, what, execId });
      const { json: info } = await this.client.call('GET', `/v1/sessions/${session}`);
      if (info.operation !== null) add(`has a ${info.operation} under way`);
      // What stands still because a client said so goes on when a client says so.
      const isAtRest = info.status === 'suspended' && info.operation === null;
      for (const { id, status } of info.checkpoints ?? [])
        if (status === 'requested') add(`waits for the checkpoint ${id}`);
      for (let cursor: number | null = null; ; ) {
        const path = `/v1/sessions/${session}/execs?limit=500${cursor === null ? '' : `&cursor=${cursor}`}`;
        const { json } = await this.client.call('GET', path);
        for (const { id, exit, status } of (json.execs ?? []) as ExecStatus[])
          if (exit === null && !isAtRest) add(`${kinds.get(id) ?? 'exec'} ${id} is ${status}`, id);
        cursor = json.cursor ?? null;
        if (cursor === null) break;
      }
    }
    return open;
  }

  private async checkLaws(): Promise<void> {
    let trees = await this.treeFacts();
    // A fork's history is read after the one that its first checkpoint is in.
    for (const [session, history] of this.histories) {
      const laws: Law[] = [epochsFence, requestsEnd, execsOnce, treesFollow(trees)];
      if (!this.faults.struck.has(session)) laws.push(nothingLost);
      for (const law of laws)
        for (const breach of law(history))
          this.violations.push({
            law: breach.law,
            what: `${session}: ${breach.what}`,
            history: shortest(history, law, breach).map(inWords),
          });
      trees = withCheckpointsOf(trees, history);
    }
  }

  private workOf(session: string): SessionWork {
    const { operations, followers } = this.script;
    return {
      session,
      operations: operations.filter((each) => each.session === session),
      followers: followers.filter(({ operation }) => operation.session === session),
      history: this.histories.get(session) ?? [],
      isStruck: this.faults.struck.has(session),
    };
  }

  private async treeFacts(): Promise<TreeFacts> {
    const { writes, looks } = this.script.time;
    const seen = new Map<string, string>();
    for (const [execId, session] of looks) {
      if (this.script.time.deleted.has(session)) continue;
      const path = `/v1/sessions/${session}/logs?exec=${execId}&stream=stdout`;
      const { bytes, complete } = await this.client.read(path);
      if (complete) seen.set(execId, bytes.toString().trim());
      else this.add('4 exact bytes', `the log of ${session}/${execId} cannot be read`);
    }
    return { writes, looks: seen, checkpoints: new Map() };
  }

  /** A request may begin by itself at any time: each is given its time to end. */
  private async quietHistoryOf(session: string): Promise<History> {
    for (const began = Date.now(); ; ) {
      const history = await this.historyOf(session);
      if (requestsEnd(history).length === 0 || Date.now() - began > QUIET_WITHIN_MS) return history;
      await new Promise((next) => setTimeout(next, 100));
    }
  }

  private async historyOf(session: string): Promise<Recorded[]> {
    const history: Recorded[] = [];
    for await (const stored of eventsOf(this.store, sessionStream(session))) {
      const recorded = decode(stored);
      if (recorded) history.push(recorded);
    }
    return history;
  }

  /** With what happened to that exec and to the sandboxes of its session from its issue to its end. */
  private addAbout({ session, execId }: Operation, law: string, what: string): void {
    const history = this.histories.get(session) ?? [];
    const isOwn = ({ event }: Recorded) => JSON.stringify(event.data).includes(execId ?? '');
    const first = history.findIndex(isOwn);
    const last = history.findLastIndex(isOwn);
    const told = history.filter(
      (each, at) =>
        isOwn(each) ||
        (each.event.type.startsWith('Sandbox') &&
          (each.event.type === 'SandboxStarted' || at >= first) &&
          at <= last),
    );
    this.violations.push({ law, what, history: told.map(inWords) });
  }

  private add(law: string, what: string): void {
    this.violations.push({ law, what });
  }
}
