import type { EventStore, Json, JsonObject, RecordedEvent } from '@vmux/event-store';
import { sessionStream } from '@vmux/events';
import type { SessionReader } from './session-reader';

/** The revision lies beyond everything that is. */
export class RevisionPastEnd extends Error {
  readonly code = 'revision_past_end';
  constructor(
    readonly from: number,
    readonly last: number,
  ) {
    super(`the history ends at revision ${last}: revision ${from} does not exist`);
    this.name = 'RevisionPastEnd';
  }
}

export interface HistoryRequest {
  readonly sessionId: string;
  /** Inclusive. */
  readonly from: number;
  readonly follow: boolean;
  readonly limit: number;
  readonly signal: AbortSignal;
}

/** Replays a session's history, from any revision, as its owner may see it. */
export class HistoryReader {
  constructor(
    private readonly store: EventStore,
    private readonly sessions: SessionReader,
  ) {}

  async open(request: HistoryRequest): Promise<AsyncGenerator<JsonObject>> {
    const last = (await this.sessions.read(request.sessionId))?.revision ?? -1;
    if (request.from > last + 1 && !request.follow) throw new RevisionPastEnd(request.from, last);
    return request.follow ? this.followed(request, last) : this.recorded(request);
  }

  private async *recorded({ sessionId, from, limit, signal }: HistoryRequest) {
    const events = this.store.read(sessionStream(sessionId), { from, limit, signal });
    for await (const event of events) yield shown(event);
  }

  /** A revision that does not exist yet is waited for, from the last one that does. */
  private async *followed({ sessionId, from, limit, signal }: HistoryRequest, last: number) {
    const after = Math.min(from - 1, last);
    const source = {
      stream: sessionStream(sessionId),
      ...(after < 0 ? {} : { afterRevision: after }),
    };
    let left = limit;
    for await (const item of this.store.subscribe(source, signal)) {
      if (item.kind !== 'event' || item.event.revision < from) continue;
      yield shown(item.event);
      left -= 1;
      if (left === 0 || item.event.type === 'SessionDeleted') return;
    }
  }
}

function shown({
  revision,
  position,
  type,
  data,
  metadata,
  recordedAt,
}: RecordedEvent): JsonObject {
  const { principal = null, correlationId = null, traceparent = null, version = null } = metadata;
  return {
    ...{ revision, position: String(position), type, version },
    recordedAt: recordedAt.toISOString(),
    ...{ principal, correlationId, traceparent },
    data: Buffer.isBuffer(data) ? null : withoutSecrets(data),
  };
}

/** Sealed values and hashes of tokens stay here, also in events that this version does not know. */
function withoutSecrets(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => name !== 'sealed' && name !== 'keyId' && name !== 'tokenHash')
      .map(([name, field]) => [name, withoutSecrets(field)]),
  );
}
