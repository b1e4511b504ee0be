import type { Json, JsonObject, RecordedEvent } from '@vmux/event-store';
import {
  EVENT_RELAY_STREAM,
  EVENT_SUBJECTS,
  eventSubject,
  isSessionId,
  logStream,
  OUTPUT_RELAY_STREAM,
  OUTPUT_SUBJECTS,
  outputSubject,
  sessionStream,
} from '@vmux/events';

/** Of the event in the store, as a decimal string. */
export const POSITION_HEADER = 'Vmux-Position';
/** Names the JetStream stream's life: with another name, sequence numbers mean something else. */
export const COPY_HEADER = 'Vmux-Copy';
/** How many bytes the message would have had, when it is larger than the server takes. */
export const OMITTED_HEADER = 'Vmux-Omitted';

const DELETED = 'SessionDeleted';

export interface CopyMessage {
  readonly subject: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
  /** What is sent when `data` is larger than the server takes. */
  readonly stub: Uint8Array;
  /** Everything of this session that precedes the message is to be forgotten. */
  readonly forgets: string | null;
}

/** One JetStream stream and what of the event store it holds. */
export interface Copy {
  readonly stream: string;
  readonly subjects: string;
  readonly prefixes: readonly string[];
  /** Null: the event is not part of this copy. */
  messageOf(event: RecordedEvent): CopyMessage | null;
  /** What is forgotten when the session is deleted. */
  subjectsOf(sessionId: string): string;
  /** Where the message stands that says so; it is never forgotten itself. */
  deletedSubject(sessionId: string): string;
}

const sessions = sessionStream('');
const logs = logStream('');
const typeForm = /^[A-Za-z0-9_-]{1,128}$/;

/** Null for a stream or a type that cannot be a token of a subject. */
function sessionOf({ stream, type }: RecordedEvent, prefix: string): string | null {
  const id = stream.startsWith(prefix) ? stream.slice(prefix.length) : '';
  return isSessionId(id) && typeForm.test(type) ? id : null;
}

const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

/** Every event of every session: `vmux.events.<session>.<type>`. */
export const eventCopy: Copy = {
  stream: EVENT_RELAY_STREAM,
  subjects: EVENT_SUBJECTS,
  prefixes: [sessions],
  subjectsOf: (sessionId) => eventSubject(sessionId, '>'),
  deletedSubject: (sessionId) => eventSubject(sessionId, DELETED),
  messageOf(event) {
    const sessionId = sessionOf(event, sessions);
    if (sessionId === null) return null;
    const envelope = {
      position: String(event.position),
      sessionId,
      revision: event.revision,
      id: event.id,
      type: event.type,
      recordedAt: event.recordedAt.getTime(),
      metadata: withoutKey(event.metadata),
    };
    const data = event.data instanceof Uint8Array ? null : withoutSecrets(event.data);
    return {
      subject: eventSubject(sessionId, event.type),
      headers: { [POSITION_HEADER]: envelope.position },
      data: json({ ...envelope, data }),
      stub: json({ ...envelope, metadata: {}, data: null, omitted: true }),
      forgets: event.type === DELETED ? sessionId : null,
    };
  },
};

/** A request's key and digest are for whoever decides. */
const withoutKey = ({ key: _, digest: __, ...metadata }: JsonObject): JsonObject => metadata;

/** Of sealed values the names are left, of a share everything but the hash of its token. */
function withoutSecrets(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (typeof value !== 'object' || value === null) return value;
  const { tokenHash: _, ...shown } = value;
  const { keyId, sealed, names } = shown;
  if (keyId !== undefined && sealed !== undefined && names !== undefined) return { names };
  return Object.fromEntries(
    Object.entries(shown).map(([name, field]) => [name, withoutSecrets(field)]),
  );
}

/** Every event of every log: `vmux.output.<session>`, a chunk's bytes as they are. */
export const outputCopy: Copy = {
  stream: OUTPUT_RELAY_STREAM,
  subjects: OUTPUT_SUBJECTS,
  // The sessions' own streams say when a log is to be forgotten.
  prefixes: [logs, sessions],
  subjectsOf: outputSubject,
  deletedSubject: (sessionId) => `${outputSubject(sessionId)}.${DELETED}`,
  messageOf(event) {
    const headers = {
      [POSITION_HEADER]: String(event.position),
      'Vmux-Revision': String(event.revision),
      'Vmux-Type': event.type,
    };
    const deleted = event.type === DELETED ? sessionOf(event, sessions) : null;
    if (deleted !== null)
      return {
        subject: this.deletedSubject(deleted),
        headers,
        data: new Uint8Array(),
        stub: new Uint8Array(),
        forgets: deleted,
      };
    const sessionId = sessionOf(event, logs);
    if (sessionId === null) return null;
    const isBytes = event.data instanceof Uint8Array;
    return {
      subject: outputSubject(sessionId),
      headers: isBytes ? { ...headers, ...chunkHeaders(event) } : headers,
      data: event.data instanceof Uint8Array ? event.data : json(event.data),
      stub: new Uint8Array(),
      forgets: null,
    };
  },
};

const CHUNK_HEADERS = {
  execId: 'Vmux-Exec',
  stream: 'Vmux-Stream',
  offset: 'Vmux-Offset',
  sessionOffset: 'Vmux-Session-Offset',
  at: 'Vmux-At',
} as const;

function chunkHeaders({ metadata }: RecordedEvent): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [field, header] of Object.entries(CHUNK_HEADERS)) {
    const value = metadata[field];
    if (typeof value === 'number' || (typeof value === 'string' && typeForm.test(value)))
      found[header] = String(value);
  }
  return found;
}
