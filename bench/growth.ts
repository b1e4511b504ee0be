import { randomUUID } from 'node:crypto';
import type { EventStore, JsonObject } from '@vmux/event-store';
import { encode, fact, LOG_MARK_EVERY, type SessionEvent, sessionStream } from '@vmux/events';
import { LOCAL_OWNER } from '../apps/gateway/src/local-key';
import { EXEC_SPEC, LogBuilder } from '../apps/gateway/test/log-builder';
import { SessionHistory } from '../apps/session-service/src/application/session-history';
import { Snapshots } from '../apps/session-service/src/application/snapshots';
import type { Cast } from '../test/support/cast';

const BATCH = 250;
export const LOG_EXEC = 'e0000000000b1';
const LINE = Buffer.from('sixty-three bytes of text and the end of its line, over and over');

/** A session with so many events, and a log of as many pieces. */
export interface Grown {
  readonly session: string;
  readonly log: string;
  readonly pieces: number;
}

/** What a reader knows that has seen the log up to a piece and was cut off. */
export const seen = (piece: number): { offset: number; eventId: string } => {
  const offset = (piece + 1) * LINE.length;
  // A mark stands at every 64th revision, the first included.
  const revision = piece + Math.floor(piece / (LOG_MARK_EVERY - 1)) + 1;
  return { offset, eventId: `${offset}@${revision}` };
};

/**
 * Makes sessions' histories as long as asked, as if they had had so many execs, and beside each a session that has
 * ended and whose log is as long. No session service runs meanwhile: it would want to see the execs done.
 */
export async function grown(
  { actors, openStore }: Cast,
  sessions: ReadonlyMap<number, string>,
): Promise<ReadonlyMap<number, Grown>> {
  const services = actors.filter(({ name }) => name.startsWith('session-service'));
  for (const service of services) await service.stop();
  const store = openStore();
  const all = new Map<number, Grown>();
  for (const [events, session] of sessions) {
    await lengthen(store, session, events);
    const log = `bench-${events.toString(16).padStart(4, '0').slice(-4)}`;
    await longLog(store, log, events);
    all.set(events, { session, log, pieces: events });
  }
  await store.close();
  for (const service of services) await service.start();
  return all;
}

async function lengthen(store: EventStore, session: string, events: number): Promise<void> {
  let revision = await headOf(store, session);
  while (revision + 1 < events) {
    const execs = Math.ceil(Math.min(BATCH, events - revision - 1) / 2);
    const batch = Array.from({ length: execs }, (_, at) => execAt(revision + 1 + at * 2)).flat();
    ({ revision } = await store.append(sessionStream(session), revision, batch));
  }
}

async function headOf(store: EventStore, session: string): Promise<number> {
  const options = { direction: 'backwards', limit: 1 } as const;
  for await (const { revision } of store.read(sessionStream(session), options)) return revision;
  throw new Error(`no history of ${session}`);
}

function execAt(revision: number) {
  const execId = `e${revision.toString(16).padStart(12, '0')}`;
  const at = Date.now();
  const sizes = { stdout: 0, stderr: 0, pty: 0 };
  const outcome = { kind: 'exited', code: 0 } as const;
  return [
    stored(fact('ExecIssued', { at, execId, epoch: 1, spec: EXEC_SPEC, follows: null })),
    stored(fact('ExecExited', { at, execId, epoch: 1, outcome, sizes, usage: null })),
  ];
}

function stored(event: SessionEvent) {
  const { type, data, metadata } = encode(event, { principal: 'system', correlationId: 'bench' });
  return {
    ...{ id: randomUUID(), type },
    data: data as unknown as JsonObject,
    metadata: metadata as unknown as JsonObject,
  };
}

async function longLog(store: EventStore, session: string, events: number): Promise<void> {
  const log = new LogBuilder(store, session, LOCAL_OWNER);
  await log.created();
  await log.issued(LOG_EXEC);
  for (let at = 0; at < events; at++) {
    log.write(LOG_EXEC, 'stdout', LINE);
    if (at % 500 === 499) await log.flush();
  }
  await log.exited(LOG_EXEC);
  await log.session(fact('SessionStopped', { at: 5, cause: 'request' }));
}

/** Folds every event of a history, without any cache; events per second. */
export async function replayed(cast: Cast, session: string): Promise<number> {
  const store = cast.openStore();
  const quiet = { debug() {}, info() {}, warn() {}, error() {} };
  const history = new SessionHistory(store, new Snapshots(store), quiet, 1);
  const started = performance.now();
  const { session: folded } = await history.replay(session);
  const seconds = (performance.now() - started) / 1000;
  await store.close();
  return (folded.revision + 1) / seconds;
}
