import type { EventStore } from '@vmux/event-store';
import { decode, type Recorded, sessionStream } from '@vmux/events';
import type { SandboxId } from '@vmux/runner-kit';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';
import { Copies, eventsOf } from './copies';
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
import { type TreeFacts, treesFollow, withCheckpointsOf } from './tree-law';
import { checkVerbs } from './verb-check';
import { type Operation, type Script, streamOf } from './workload';

export interface Violation {
  readonly law: string;
  readonly what: string;
  /** The shortest history that shows it. */
  readonly history?: readonly string[];
}

interface ExecFacts {
  readonly id: string;
  readonly status: string;
  readonly epoch: number | null;
  readonly exit: { readonly kind: string; readonly code?: number; readonly reason?: string } | null;
  readonly sizes: { readonly stdout: number; readonly pty: number };
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
    for (const session of this.script.sessions) {
      const marks = await this.marksOf(session);
      for (const operation of this.script.operations.filter((each) => each.session === session))
        await this.checkOperation(operation, marks);
    }
    await this.checkFollowers();
    await this.checkLaws();
    checkVerbs(this.script.time, this.histories, (law, what) => this.add(law, what));
    const add = (law: string, what: string) => this.add(law, what);
    await new Copies(this.cast, this.client, this.store, this.sessions, add).check();
  }

  /** Every sandbox that any of the sessions ever had. */
  async sandboxes(): Promise<SandboxId[]> {
    const found: SandboxId[] = [];
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
      for (const { id, status } of info.checkpoints ?? [])
        if (status === 'requested') add(`waits for the checkpoint ${id}`);
      for (let cursor: number | null = null; ; ) {
        const path = `/v1/sessions/${session}/execs?limit=500${cursor === null ? '' : `&cursor=${cursor}`}`;
        const { json } = await this.client.call('GET', path);
        for (const { id, exit, status } of (json.execs ?? []) as ExecFacts[])
          if (exit === null) add(`${kinds.get(id) ?? 'exec'} ${id} is ${status}`, id);
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

  private async checkFollowers(): Promise<void> {
    for (const { operation, bytes, finished, shown, fault } of this.script.followers) {
      const { execId } = operation;
      if (!finished) this.add('4 exact bytes', `a follower of ${execId} never ended`);
      const log = await this.logOf(operation);
      if (!log.equals(bytes))
        this.add(
          '4 exact bytes',
          `a follower of ${execId} saw ${bytes.length} bytes that are not the log's ${log.length}`,
        );
      if (shown && !log.equals(shown))
        this.add(
          '4 exact bytes',
          `a terminal attached to ${execId} showed ${shown.length} bytes that are not the log's ${log.length}`,
        );
      if (fault) this.add('4 exact bytes', `a terminal attached to ${execId} failed: ${fault}`);
    }
  }

  private async checkOperation(
    operation: Operation,
    marks: ReadonlyMap<string, number> | null,
  ): Promise<void> {
    const { answers, execId, session, kind } = operation;
    if (new Set(answers).size > 1)
      this.add('3 once', `one key, several execs: ${answers.join(', ')}`);
    if (!execId) return;
    const exec = await this.execOf(operation);
    if (!exec)
      return this.add(
        '2 acknowledged means durable',
        `${session}/${execId} was acknowledged and is gone`,
      );
    const times = marks?.get(operation.mark) ?? 0;
    if (times > 1) this.addAbout(operation, '3 once', `${session}/${execId} ran ${times} times`);
    const unknown = exec.exit?.kind === 'unknown';
    if (kind === 'cancel') {
      const expected = ['signalled', 'not_started', 'unknown'];
      if (operation.cancelled && exec.exit && !expected.includes(exec.exit.kind))
        this.addAbout(
          operation,
          '5 no invented outcomes',
          `cancelled ${execId} ended as ${JSON.stringify(exec.exit)}`,
        );
      return;
    }
    const succeeded = exec.exit?.kind === 'exited' && exec.exit.code === 0;
    if (!succeeded && !unknown && exec.exit?.kind !== 'not_started')
      this.addAbout(
        operation,
        '5 no invented outcomes',
        `${session}/${execId} (${kind}) ended as ${JSON.stringify(exec.exit)}`,
      );
    if (succeeded && marks && !this.faults.struck.has(session) && times !== 1)
      this.addAbout(
        operation,
        '5 no invented outcomes',
        `${session}/${execId} succeeded and left ${times} marks`,
      );
    if (operation.expected) await this.checkBytes(operation, operation.expected, succeeded);
  }

  private async checkBytes(
    operation: Operation,
    expected: Buffer,
    succeeded: boolean,
  ): Promise<void> {
    const log = await this.logOf(operation);
    const { execId, kind } = operation;
    if (succeeded && !log.equals(expected))
      this.addAbout(
        operation,
        '4 exact bytes',
        `${execId} (${kind}) wrote ${expected.length} bytes, its log has ${log.length} others`,
      );
    if (!succeeded && !expected.subarray(0, log.length).equals(log))
      this.addAbout(
        operation,
        '4 exact bytes',
        `the log of ${execId} (${kind}) is not the beginning of what it wrote`,
      );
  }

  private async execOf({ session, execId }: Operation): Promise<ExecFacts | null> {
    const answer = await this.client.call('GET', `/v1/sessions/${session}/execs/${execId}`);
    return answer.status === 200 ? answer.json : null;
  }

  private async logOf(operation: Operation): Promise<Buffer> {
    const { session, execId } = operation;
    const stream = streamOf(operation);
    const { bytes, complete, status } = await this.client.read(
      `/v1/sessions/${session}/logs?exec=${execId}&stream=${stream}`,
    );
    if (!complete) this.add('4 exact bytes', `the log of ${execId} cannot be read (${status})`);
    return bytes;
  }

  /** How often each exec ran, as the sandbox tells it; null where the sandbox was killed and its files are gone. */
  private async marksOf(session: string): Promise<ReadonlyMap<string, number> | null> {
    const answer = await this.client.call('POST', `/v1/sessions/${session}/execs?wait=30s`, {
      command: 'cat /workspace/marks',
    });
    if (answer.json?.exit?.kind !== 'exited' || answer.json.exit.code !== 0) return null;
    const { bytes } = await this.client.read(
      `/v1/sessions/${session}/logs?exec=${answer.json.id}&stream=stdout`,
    );
    const marks = new Map<string, number>();
    for (const mark of bytes.toString().trim().split('\n'))
      marks.set(mark, (marks.get(mark) ?? 0) + 1);
    return marks;
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
