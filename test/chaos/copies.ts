import { isDeepStrictEqual } from 'node:util';
import type { EventStore } from '@vmux/event-store';
import { logStream, sessionStream } from '@vmux/events';
import { SessionHistory } from '../../apps/session-service/src/application/session-history';
import { Snapshots } from '../../apps/session-service/src/application/snapshots';
import { exists, type Session } from '../../apps/session-service/src/domain/state';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';
import type { HistoryWatch } from './history-watch';
import { checkRelay, EVENTS_COPY, OUTPUT_COPY } from './relay-check';
import { eventsOf } from './store-reads';
import { type AddShown, plain, ViewsCheck } from './views-check';

const QUIET_WITHIN_MS = 10_000;
const LAW = '1 the history';

export interface Copied {
  readonly cast: Cast;
  readonly client: PatientClient;
  readonly store: EventStore;
  readonly sessions: readonly string[];
  readonly watches: readonly HistoryWatch[];
  /** Values that no history may hold. */
  readonly secrets: readonly string[];
}

/** Whatever is kept beside the histories is what they say. */
export class Copies {
  constructor(
    private readonly copied: Copied,
    private readonly add: AddShown,
  ) {}

  async check(): Promise<void> {
    const { add } = this;
    const { cast, client, store, sessions, watches } = this.copied;
    for (const session of sessions) {
      await this.checkEvents(session);
      await this.checkLog(session);
      await this.checkFold(session);
    }
    for (const watch of watches) await this.checkWatch(watch);
    await new ViewsCheck(client, store, sessions, add).check();
    for (const copy of [EVENTS_COPY, OUTPUT_COPY])
      for (const fault of await checkRelay(cast, store, sessions, copy)) add('relay', fault);
  }

  private async checkEvents(session: string): Promise<void> {
    const { store, secrets } = this.copied;
    for (const stream of [sessionStream(session), logStream(session)]) {
      let expected = 0;
      for await (const { revision, type, data, metadata } of eventsOf(store, stream)) {
        if (revision !== expected)
          this.add(LAW, `${stream} goes from ${expected - 1} to ${revision}`);
        expected = revision + 1;
        const text = `${JSON.stringify(metadata)}${Buffer.isBuffer(data) ? data.toString('latin1') : JSON.stringify(data)}`;
        if (secrets.some((secret) => text.includes(secret)))
          this.add('secrets are not eternal', `${stream} has one in clear in ${revision} ${type}`);
      }
    }
  }

  /** All output of a session, as it was merged, is what its log holds. */
  private async checkLog(session: string): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const { data } of eventsOf(this.copied.store, logStream(session)))
      if (Buffer.isBuffer(data)) pieces.push(data);
    const { bytes, complete, status } = await this.copied.client.read(
      `/v1/sessions/${session}/logs`,
    );
    const log = Buffer.concat(pieces);
    if (!complete || !bytes.equals(log))
      this.add(
        '4 exact bytes',
        `all output of ${session} is ${log.length} bytes and was read as ${bytes.length} (${status})`,
      );
  }

  /** Whoever followed it saw every event once, in order, however often it left. */
  private async checkWatch(watch: HistoryWatch): Promise<void> {
    const stream = sessionStream(watch.session);
    const truth: string[] = [];
    for await (const { revision, position, type } of eventsOf(this.copied.store, stream))
      truth.push(`${revision} ${position} ${type}`);
    const seen = (await watch.end(truth.length, QUIET_WITHIN_MS)).map(
      ({ revision, position, type }) => `${revision} ${position} ${type}`,
    );
    const at = truth.findIndex((each, index) => seen[index] !== each);
    if (at >= 0)
      this.add(
        LAW,
        `who followed ${watch.session} was told ${seen[at] ?? 'nothing'} for ${truth[at]}`,
      );
  }

  /** What was kept of a session to read less is what all of its events say; and nothing is owed any more. */
  private async checkFold(session: string): Promise<void> {
    const quiet = { debug() {}, info() {}, warn() {}, error() {} };
    const history = new SessionHistory(
      this.copied.store,
      new Snapshots(this.copied.store),
      quiet,
      1,
    );
    const [kept, whole] = [await history.load(session), await history.replay(session)];
    if (!isDeepStrictEqual(plain(kept.session), plain(whole.session)))
      this.add(LAW, `the snapshot of ${session} is not what its replay is`);
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
}

function owedBy(session: Session): string[] {
  if (!exists(session)) return [];
  const { operation, pending, retired, forks, unarchived, replay } = session;
  return Object.entries({ operation, pending, retired, forks, unarchived, replay })
    .filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0))
    .map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
}
