import { isDeepStrictEqual } from 'node:util';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { decode, EVENT_RELAY_STREAM, logStream, sessionStream } from '@vmux/events';
import { connect } from 'nats';
import { summaryJson } from '../../apps/gateway/src/application/present';
import { project } from '../../apps/gateway/src/projections/project';
import { type SessionRow, summaryOf } from '../../apps/gateway/src/projections/session-row';
import { SessionHistory } from '../../apps/session-service/src/application/session-history';
import { Snapshots } from '../../apps/session-service/src/application/snapshots';
import { exists, type Session } from '../../apps/session-service/src/domain/state';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';

const RELAYED_WITHIN_MS = 10_000;
const QUIET_WITHIN_MS = 10_000;
type Add = (law: string, what: string) => void;

export async function* eventsOf(store: EventStore, stream: string): AsyncGenerator<RecordedEvent> {
  try {
    yield* store.read(stream);
  } catch (fault) {
    // A session that wrote nothing has no log.
    if (!(fault instanceof Error && fault.name === 'StreamNotFound')) throw fault;
  }
}

/** Whatever is kept beside the histories is what they say. */
export class Copies {
  constructor(
    private readonly cast: Cast,
    private readonly client: PatientClient,
    private readonly store: EventStore,
    private readonly sessions: readonly string[],
    private readonly add: Add,
  ) {}

  async check(): Promise<void> {
    for (const session of this.sessions) {
      await this.checkRevisions(session);
      await this.checkList(session);
      await this.checkFold(session);
    }
    await this.checkRelay();
  }

  private async checkRevisions(session: string): Promise<void> {
    for (const stream of [sessionStream(session), logStream(session)]) {
      let expected = 0;
      for await (const { revision } of eventsOf(this.store, stream)) {
        if (revision !== expected)
          this.add('1 the history', `${stream} goes from ${expected - 1} to ${revision}`);
        expected = revision + 1;
      }
    }
  }

  /** Lists are eventual: they are asked for as of a position. */
  private async checkList(session: string): Promise<void> {
    let row: SessionRow | null = null;
    let position = 0n;
    for await (const stored of eventsOf(this.store, sessionStream(session))) {
      const recorded = decode(stored);
      position = stored.position;
      if (recorded) row = project(row, { ...recorded, position });
    }
    const expected = row && plain(summaryJson(summaryOf(row)));
    const path = `/v1/sessions?limit=200&after=${position}`;
    const { json: listed } = await this.client.call('GET', path);
    const shown = listed.sessions?.find((each: { id: string }) => each.id === session);
    const wrong = Object.entries(expected ?? {}).filter(
      ([name, value]) => !isDeepStrictEqual(shown?.[name], value),
    );
    if (!expected || wrong.length > 0)
      this.add('1 the history', `${session} is listed without ${JSON.stringify(wrong)}`);
  }

  /** What was kept of a session to read less is what all of its events say; and nothing is owed any more. */
  private async checkFold(session: string): Promise<void> {
    const quiet = { debug() {}, info() {}, warn() {}, error() {} };
    const history = new SessionHistory(this.store, new Snapshots(this.store), quiet, 1);
    const [kept, whole] = [await history.load(session), await history.replay(session)];
    if (!isDeepStrictEqual(plain(kept.session), plain(whole.session)))
      this.add('1 the history', `the snapshot of ${session} is not what its replay is`);
    for (const deadline = Date.now() + QUIET_WITHIN_MS; ; ) {
      const owed = owedBy((await history.replay(session)).session);
      if (owed.length === 0) return;
      if (Date.now() < deadline) {
        await new Promise((next) => setTimeout(next, 200));
        continue;
      }
      for (const what of owed) this.add('7 converges', `${session} is left with ${what}`);
      return;
    }
  }

  /** The copy has every event, once each by position, in the order of the store. */
  private async checkRelay(): Promise<void> {
    const truth: { position: bigint; type: string }[] = [];
    for (const session of this.sessions)
      for await (const { position, type } of eventsOf(this.store, sessionStream(session)))
        truth.push({ position, type });
    truth.sort((one, other) => (one.position < other.position ? -1 : 1));
    for (const deadline = Date.now() + RELAYED_WITHIN_MS; ; ) {
      const copied = await this.copiedEvents();
      const positions = [...copied.keys()];
      const inOrder = positions.every((each, at) => at === 0 || each > (positions[at - 1] ?? 0n));
      const missing = truth.filter(({ position, type }) => copied.get(position) !== type);
      if (missing.length === 0 && inOrder) return;
      if (Date.now() < deadline) {
        await new Promise((next) => setTimeout(next, 200));
        continue;
      }
      if (!inOrder) this.add('relay', 'the copy is not in the order of the store');
      const [first] = missing;
      if (first)
        this.add(
          'relay',
          `the copy lacks ${missing.length} of ${truth.length} events, first ${first.position} ${first.type}`,
        );
      return;
    }
  }

  private async copiedEvents(): Promise<Map<bigint, string>> {
    const connection = await connect({ servers: this.cast.natsUrl, ...this.cast.natsLogin });
    try {
      const seen = new Map<bigint, string>();
      const consumer = await connection.jetstream().consumers.get(EVENT_RELAY_STREAM);
      for (let got = -1; got !== 0; ) {
        got = 0;
        for await (const message of await consumer.fetch({ max_messages: 500, expires: 1_000 })) {
          got += 1;
          const position = BigInt(message.headers?.get('Vmux-Position') ?? 0);
          seen.set(position, message.subject.split('.').at(-1) ?? '');
        }
      }
      return seen;
    } finally {
      await connection.close();
    }
  }
}

function owedBy(session: Session): string[] {
  if (!exists(session)) return [];
  const { operation, pending, retired, forks, unarchived, replay } = session;
  return Object.entries({ operation, pending, retired, forks, unarchived, replay })
    .filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0))
    .map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
}

/** As it is after a snapshot: undefined members do not survive one. */
const plain = (value: object): Record<string, unknown> => JSON.parse(JSON.stringify(value));
