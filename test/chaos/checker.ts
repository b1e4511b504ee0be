import { isDeepStrictEqual } from 'node:util';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { decode, EVENT_RELAY_STREAM, logStream, sessionStream } from '@vmux/events';
import type { SandboxId } from '@vmux/runner-kit';
import { connect } from 'nats';
import { summaryJson } from '../../apps/gateway/src/application/present';
import { project } from '../../apps/gateway/src/projections/project';
import { type SessionRow, summaryOf } from '../../apps/gateway/src/projections/session-row';
import { SessionHistory } from '../../apps/session-service/src/application/session-history';
import { Snapshots } from '../../apps/session-service/src/application/snapshots';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';
import type { Faults } from './nemesis';
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
  readonly exit: { readonly kind: string; readonly code?: number; readonly reason?: string } | null;
  readonly sizes: { readonly stdout: number; readonly pty: number };
}

/** Judges what clients saw by what the history, the sandboxes and the copies say. */
export class Checker {
  readonly violations: Violation[] = [];

  constructor(
    private readonly cast: Cast,
    private readonly client: PatientClient,
    private readonly script: Script,
    private readonly faults: Faults,
    private readonly store: EventStore,
  ) {}

  /** Resolves when every exec has an outcome; says how long that took. */
  async settled(timeoutMs: number): Promise<number> {
    const began = Date.now();
    for (;;) {
      const open = await this.openExecs();
      if (open.length === 0) return Date.now() - began;
      if (Date.now() - began > timeoutMs) {
        for (const each of open) this.add('7 converges', `not settled: ${each}`);
        return Date.now() - began;
      }
      await new Promise((next) => setTimeout(next, 100));
    }
  }

  async check(): Promise<void> {
    for (const session of this.script.sessions) {
      const marks = await this.marksOf(session);
      for (const operation of this.script.operations.filter((each) => each.session === session)) {
        await this.checkOperation(operation, marks);
      }
      await this.checkRevisions(session);
    }
    for (const { operation, bytes, finished } of this.script.followers) {
      if (!finished) this.add('4 exact bytes', `a follower of ${operation.execId} never ended`);
      const log = await this.logOf(operation);
      if (!log.equals(bytes)) {
        this.add(
          '4 exact bytes',
          `a follower of ${operation.execId} saw ${bytes.length} bytes that are not the log's ${log.length}`,
        );
      }
    }
    await this.checkLists();
    await this.checkSnapshots();
    await this.checkRelay();
  }

  /** Every sandbox that any of the sessions ever had. */
  async sandboxes(): Promise<SandboxId[]> {
    const found: SandboxId[] = [];
    for (const sessionId of this.script.sessions) {
      for await (const { type, data } of this.eventsOf(sessionStream(sessionId))) {
        if (type !== 'SandboxStarted' || data instanceof Uint8Array) continue;
        found.push({ sessionId, epoch: Number(data.epoch), instance: String(data.instance) });
      }
    }
    return found;
  }

  private async openExecs(): Promise<string[]> {
    const kinds = new Map(this.script.operations.map(({ execId, kind }) => [execId, kind]));
    const open: string[] = [];
    for (const session of this.script.sessions) {
      for (let cursor: number | null = null; ; ) {
        const path = `/v1/sessions/${session}/execs?limit=500${cursor === null ? '' : `&cursor=${cursor}`}`;
        const { json } = await this.client.call('GET', path);
        for (const { id, exit, status } of json.execs as ExecFacts[])
          if (exit === null) open.push(`${kinds.get(id)} ${session}/${id} is ${status}`);
        cursor = json.cursor;
        if (cursor === null) break;
      }
    }
    return open;
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
    if (times > 1)
      await this.addWithHistory('3 once', `${session}/${execId} ran ${times} times`, operation);
    const unknown = exec.exit?.kind === 'unknown';
    if (unknown && !this.faults.struck.has(session)) {
      await this.addWithHistory(
        '5 no invented outcomes',
        `${session}/${execId} is unknown (${exec.exit?.reason}) though its sandbox was left alone`,
        operation,
      );
    }
    if (kind === 'cancel') {
      const expected = ['signalled', 'not_started', 'unknown'];
      if (operation.cancelled && exec.exit && !expected.includes(exec.exit.kind)) {
        this.add(
          '5 no invented outcomes',
          `cancelled ${execId} ended as ${JSON.stringify(exec.exit)}`,
        );
      }
      return;
    }
    const succeeded = exec.exit?.kind === 'exited' && exec.exit.code === 0;
    if (!succeeded && !unknown && exec.exit?.kind !== 'not_started') {
      await this.addWithHistory(
        '5 no invented outcomes',
        `${session}/${execId} (${kind}) ended as ${JSON.stringify(exec.exit)}`,
        operation,
      );
    }
    if (succeeded && marks && !this.faults.struck.has(session) && times !== 1) {
      this.add('5 no invented outcomes', `${session}/${execId} succeeded and left ${times} marks`);
    }
    if (operation.expected) await this.checkBytes(operation, operation.expected, succeeded);
  }

  private async checkBytes(
    operation: Operation,
    expected: Buffer,
    succeeded: boolean,
  ): Promise<void> {
    const log = await this.logOf(operation);
    const { execId } = operation;
    if (succeeded && !log.equals(expected)) {
      this.add(
        '4 exact bytes',
        `${execId} wrote ${expected.length} bytes, its log has ${log.length} others`,
      );
    }
    if (!succeeded && !expected.subarray(0, log.length).equals(log)) {
      this.add('4 exact bytes', `the log of ${execId} is not the beginning of what it wrote`);
    }
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

  private async checkRevisions(session: string): Promise<void> {
    for (const stream of [sessionStream(session), logStream(session)]) {
      let expected = 0;
      for await (const { revision } of this.eventsOf(stream)) {
        if (revision !== expected)
          this.add('1 the history', `${stream} goes from ${expected - 1} to ${revision}`);
        expected = revision + 1;
      }
    }
  }

  /** Lists are eventual: they are given a moment to be what a fresh replay of the histories says. */
  private async checkLists(): Promise<void> {
    for (const session of this.script.sessions) {
      let row: SessionRow | null = null;
      let position = 0n;
      for await (const stored of this.eventsOf(sessionStream(session))) {
        const recorded = decode(stored);
        position = stored.position;
        if (recorded) row = project(row, { ...recorded, position });
      }
      const expected = row && plain(summaryJson(summaryOf(row)));
      const path = `/v1/sessions?limit=100&after=${position}`;
      const { json: listed } = await this.client.call('GET', path);
      const shown = listed.sessions?.find((each: { id: string }) => each.id === session);
      const wrong = Object.entries(expected ?? {}).filter(
        ([name, value]) => !isDeepStrictEqual(shown?.[name], value),
      );
      if (!expected || wrong.length > 0)
        this.add('1 the history', `${session} is listed without ${JSON.stringify(wrong)}`);
    }
  }

  /** What was kept of a session to read less is what all of its events say. */
  private async checkSnapshots(): Promise<void> {
    const quiet = { debug() {}, info() {}, warn() {}, error() {} };
    for (const session of this.script.sessions) {
      const history = new SessionHistory(this.store, new Snapshots(this.store), quiet, 1);
      const [kept, whole] = [await history.load(session), await history.replay(session)];
      if (!isDeepStrictEqual(plain(kept.session), plain(whole.session)))
        this.add('1 the history', `the snapshot of ${session} is not what its replay is`);
    }
  }

  /** The copy has every event, once each by position, in the order of the store. */
  private async checkRelay(): Promise<void> {
    const truth: string[] = [];
    for (const session of this.script.sessions) {
      for await (const event of this.eventsOf(sessionStream(session)))
        truth.push(`${event.position} ${event.type}`);
    }
    truth.sort((one, other) =>
      BigInt(one.split(' ')[0] ?? 0) < BigInt(other.split(' ')[0] ?? 0) ? -1 : 1,
    );
    const deadline = Date.now() + 10_000;
    for (;;) {
      const copied = await this.copiedEvents();
      const inOrder = copied.every(
        (each, at) =>
          at === 0 || BigInt(each.split(' ')[0] ?? 0) > BigInt(copied[at - 1]?.split(' ')[0] ?? 0),
      );
      const missing = truth.filter((each) => !copied.includes(each));
      if (missing.length === 0 && inOrder) return;
      if (Date.now() < deadline) {
        await new Promise((next) => setTimeout(next, 200));
        continue;
      }
      if (!inOrder) this.add('relay', 'the copy is not in the order of the store');
      if (missing.length > 0)
        this.add(
          'relay',
          `the copy lacks ${missing.length} of ${truth.length} events, first ${missing[0]}`,
        );
      return;
    }
  }

  private async copiedEvents(): Promise<string[]> {
    const connection = await connect({ servers: this.cast.natsUrl, ...this.cast.natsLogin });
    try {
      const seen = new Map<string, string>();
      const consumer = await connection.jetstream().consumers.get(EVENT_RELAY_STREAM);
      for (let got = -1; got !== 0; ) {
        got = 0;
        for await (const message of await consumer.fetch({ max_messages: 500, expires: 1_000 })) {
          got += 1;
          const position = message.headers?.get('Vmux-Position') ?? '';
          seen.set(position, `${position} ${message.subject.split('.').at(-1)}`);
        }
      }
      return [...seen.values()];
    } finally {
      await connection.close();
    }
  }

  private async *eventsOf(stream: string): AsyncGenerator<RecordedEvent> {
    try {
      yield* this.store.read(stream);
    } catch (fault) {
      // A session that wrote nothing has no log.
      if (!(fault instanceof Error && fault.name === 'StreamNotFound')) throw fault;
    }
  }

  private async addWithHistory(
    law: string,
    what: string,
    { session, execId }: Operation,
  ): Promise<void> {
    const history: string[] = [];
    for await (const { revision, type, data } of this.eventsOf(sessionStream(session))) {
      const text = JSON.stringify(data);
      // What happened to other execs says nothing about this one.
      if (type.startsWith('Exec') && !text.includes(execId ?? '')) continue;
      history.push(`${revision} ${type} ${text.slice(0, 200)}`);
    }
    this.violations.push({ law, what, history });
  }

  private add(law: string, what: string): void {
    this.violations.push({ law, what });
  }
}

/** As it is after a snapshot: undefined members do not survive one. */
const plain = (value: object): Record<string, unknown> => JSON.parse(JSON.stringify(value));
