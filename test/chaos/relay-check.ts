import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { EventStore, RecordedEvent } from '@vmux/event-store';
import { EVENT_RELAY_STREAM, logStream, OUTPUT_RELAY_STREAM, sessionStream } from '@vmux/events';
import { connect, type JsMsg } from 'nats';
import type { Cast } from '../support/cast';
import { eventsOf } from './store-reads';

/** What a message must say, and be. */
interface Told {
  readonly type: string;
  readonly subject: string;
  readonly content: string;
}

interface Message extends Told {
  readonly position: bigint;
}

/** One of JetStream's copies, and what it has to hold. */
export interface RelayedCopy {
  readonly stream: string;
  readonly source: (session: string) => string;
  readonly expected: (event: RecordedEvent, session: string) => Told;
  readonly told: (message: JsMsg) => Told;
}

const COPIED_WITHIN_MS = 10_000;
const MOST_TOLD = 3;
const DELETED = 'SessionDeleted';
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** In the same words, whatever order the fields came in. */
const inOrder = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, field]) => [name, inOrder(field)]),
  );
};
const wordsOf = (value: unknown): string => JSON.stringify(inOrder(value));

/** Of sealed values the copy has the names. */
const withNames = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(withNames);
  if (typeof value !== 'object' || value === null) return value;
  if ('sealed' in value && 'names' in value) return { names: value.names };
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, withNames(field)]));
};

export const EVENTS_COPY: RelayedCopy = {
  stream: EVENT_RELAY_STREAM,
  source: sessionStream,
  expected: ({ type, revision, id, data }, sessionId) => ({
    type,
    subject: `vmux.events.${sessionId}.${type}`,
    content: wordsOf({ sessionId, revision, id, type, data: withNames(data) }),
  }),
  told: (message) => {
    const { sessionId, revision, id, type, data } = message.json<Record<string, unknown>>();
    return {
      type: message.subject.split('.').at(-1) ?? '',
      subject: message.subject,
      content: wordsOf({ sessionId, revision, id, type, data }),
    };
  },
};

export const OUTPUT_COPY: RelayedCopy = {
  stream: OUTPUT_RELAY_STREAM,
  source: logStream,
  expected: ({ type, revision, data, metadata }, session) => ({
    type,
    subject: `vmux.output.${session}`,
    content: Buffer.isBuffer(data)
      ? `${revision} ${metadata.execId} ${metadata.stream} ${metadata.offset} ${digestOf(data)}`
      : `${revision} ${wordsOf(data)}`,
  }),
  told: ({ subject, headers, data }) => {
    const revision = headers?.get('Vmux-Revision');
    const [exec, stream, offset] = ['Vmux-Exec', 'Vmux-Stream', 'Vmux-Offset'].map((name) =>
      headers?.get(name),
    );
    return {
      type: headers?.get('Vmux-Type') ?? '',
      subject,
      content: exec
        ? `${revision} ${exec} ${stream} ${offset} ${digestOf(data)}`
        : `${revision} ${data.length === 0 ? '' : wordsOf(JSON.parse(Buffer.from(data).toString()))}`,
    };
  },
};

/** A copy has every event of these sessions, each once, in the order of the store, and of deleted ones nothing. */
export async function checkRelay(
  cast: Cast,
  store: EventStore,
  sessions: readonly string[],
  copy: RelayedCopy,
): Promise<string[]> {
  for (const began = Date.now(); ; await pause(200)) {
    // The copy first: what a sandbox that is given back writes meanwhile is then in the truth too.
    const messages = await messagesOf(cast, copy);
    const faults = faultsOf(messages, await truthOf(store, sessions, copy));
    if (faults.length === 0 || Date.now() - began > COPIED_WITHIN_MS)
      return told(faults).map((fault) => `${copy.stream} ${fault}`);
  }
}

async function truthOf(
  store: EventStore,
  sessions: readonly string[],
  copy: RelayedCopy,
): Promise<ReadonlyMap<bigint, Told>> {
  const truth = new Map<bigint, Told>();
  for (const session of sessions)
    for await (const event of eventsOf(store, copy.source(session)))
      truth.set(event.position, copy.expected(event, session));
  return truth;
}

/** Nothing but the notices that they were deleted. */
export async function heldAfterDeletion(cast: Cast, copy: RelayedCopy): Promise<string[]> {
  const held = (await messagesOf(cast, copy)).filter(({ type }) => type !== DELETED);
  const [first] = held;
  return first ? [`${copy.stream} still has ${held.length} messages, first ${first.subject}`] : [];
}

/** One fault leads to many. */
const told = (faults: readonly string[]): string[] =>
  faults.length <= MOST_TOLD
    ? [...faults]
    : [...faults.slice(0, MOST_TOLD), `has ${faults.length - MOST_TOLD} more faults`];

export function faultsOf(messages: readonly Message[], truth: ReadonlyMap<bigint, Told>): string[] {
  const faults: string[] = [];
  const seen = new Set<bigint>();
  let last = -1n;
  for (const { position, ...told } of messages) {
    if (seen.has(position)) faults.push(`has ${position} twice`);
    else if (position < last) faults.push(`has ${position} after ${last}`);
    last = position;
    seen.add(position);
    const expected = truth.get(position);
    if (!expected && told.type !== DELETED)
      faults.push(`has ${position} ${told.subject}, which no history has`);
    if (expected && !isDeepStrictEqual(told, expected))
      faults.push(`has ${JSON.stringify(told)} for ${JSON.stringify(expected)}`);
  }
  const missing = [...truth].filter(([position]) => !seen.has(position));
  const [first] = missing.sort(([one], [other]) => (one < other ? -1 : 1));
  if (first)
    faults.push(
      `lacks ${missing.length} of ${truth.size} events, first ${first[0]} ${first[1].subject}`,
    );
  return faults;
}

async function messagesOf({ natsUrl, natsLogin }: Cast, copy: RelayedCopy): Promise<Message[]> {
  const connection = await connect({ servers: natsUrl, ...natsLogin });
  try {
    const messages: Message[] = [];
    const consumer = await connection.jetstream().consumers.get(copy.stream);
    for (let got = -1; got !== 0; ) {
      got = 0;
      for await (const message of await consumer.fetch({ max_messages: 500, expires: 1_000 })) {
        got += 1;
        const position = BigInt(message.headers?.get('Vmux-Position') ?? 0);
        messages.push({ position, ...copy.told(message) });
      }
    }
    return messages;
  } finally {
    await connection.close();
  }
}
