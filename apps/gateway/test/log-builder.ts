import { randomUUID } from 'node:crypto';
import type { EventStore, JsonObject, NewEvent } from '@vmux/event-store';
import {
  type ExecSpec,
  encode,
  encodeLogEvent,
  fact,
  LOG_MARK_EVERY,
  type LogEvent,
  logStream,
  NO_OUTPUT,
  type SessionEvent,
  type Sizes,
  type Stream,
  type StreamCursor,
  sessionStream,
} from '@vmux/events';
import { newSessionFrom } from '../src/sessions/new-session';

export const EXEC_SPEC: ExecSpec = {
  command: { kind: 'shell', line: 'x' },
  ...{ env: null, cwd: null, user: null, pty: null, stdin: false, timeoutMs: null },
  ...{ keepsAwake: true, purpose: 'user', service: null },
};

/** Writes a session's two streams as session services do, without one. */
export class LogBuilder {
  private revision = -1;
  private sessionOffset = 0;
  private streams: Record<string, StreamCursor> = {};
  private pending: LogEvent[] = [];
  private sessionRevision = -1;
  /** Marks as another writer might leave them: without what they know of execs. */
  forgetful = false;

  constructor(
    private readonly store: EventStore,
    readonly sessionId: string,
    private readonly owner = 'me',
  ) {}

  async session(...events: readonly SessionEvent[]): Promise<void> {
    await this.flush();
    const metadata = { principal: 'system', correlationId: 'test' };
    const expected = this.sessionRevision < 0 ? 'none' : this.sessionRevision;
    const stored = events.map((event) => stable(encode(event, metadata)));
    await this.store.append(sessionStream(this.sessionId), expected, stored);
    this.sessionRevision += events.length;
  }

  created(on = 'ns'): Promise<void> {
    const { spec, name, provider } = newSessionFrom(
      { name: 'built' },
      { defaultProvider: on, allowedHosts: [] },
    );
    const { sessionId, owner } = this;
    const whole = { ...spec, env: null };
    return this.session(
      fact('SessionCreated', {
        ...{
          at: 1,
          sessionId,
          owner,
          name,
          attempt: 0,
          provider,
          spec: whole,
          lineage: null,
        },
      }),
    );
  }

  issued(execId: string): Promise<void> {
    return this.session(
      fact('ExecIssued', { at: 2, execId, epoch: 1, spec: EXEC_SPEC, follows: null }),
    );
  }

  async exited(execId: string): Promise<void> {
    const sizes: Sizes = this.streams[execId]?.next ?? NO_OUTPUT;
    const outcome = { kind: 'exited', code: 0 } as const;
    await this.session(
      fact('ExecExited', { at: 3, execId, epoch: 1, outcome, sizes, usage: null }),
    );
    delete this.streams[execId];
  }

  write(execId: string, stream: Stream, bytes: Uint8Array): void {
    const cursor = this.cursorOf(execId);
    const offset = cursor.next[stream];
    const { sessionOffset } = this;
    this.put({ type: 'LogChunk', execId, stream, offset, sessionOffset, at: 4, issued: 0, bytes });
    this.advance(execId, stream, bytes.length);
  }

  gap(execId: string, stream: Stream, length: number): void {
    const from = this.cursorOf(execId).next[stream];
    const { sessionOffset } = this;
    const range = { from, to: from + length, sessionOffset };
    this.put({ type: 'LogGap', execId, stream, ...range, reason: 'lost', at: 4, issued: 0 });
    this.advance(execId, stream, length);
  }

  async flush(): Promise<void> {
    while (this.pending.length > 0) {
      const batch = this.pending.splice(0, 500);
      const expected = this.revision - this.pending.length - batch.length;
      await this.store.append(
        logStream(this.sessionId),
        expected < 0 ? 'none' : expected,
        batch.map((event) => stable(encodeLogEvent(event))),
      );
    }
  }

  /** Drops everything before the revision, as retention does. */
  async truncateBefore(revision: number): Promise<void> {
    await this.flush();
    const metadata: NewEvent = { id: randomUUID(), type: '$metadata', data: { $tb: revision } };
    await this.store.append(`$$${logStream(this.sessionId)}`, 'any', [metadata]);
  }

  private cursorOf(execId: string): StreamCursor {
    return this.streams[execId] ?? { next: NO_OUTPUT, resizes: 0, issued: 0 };
  }

  private advance(execId: string, stream: Stream, length: number): void {
    const cursor = this.cursorOf(execId);
    const next = { ...cursor.next, [stream]: cursor.next[stream] + length };
    this.streams[execId] = { ...cursor, next };
    this.sessionOffset += length;
  }

  private put(event: LogEvent): void {
    if ((this.revision + 1) % LOG_MARK_EVERY === 0) {
      this.revision += 1;
      this.pending.push({
        ...{ type: 'LogMark', epoch: 1, instance: 'i', closed: false, segments: [], at: 4 },
        ...{ sessionOffset: this.sessionOffset, firstOffset: 0 },
        sessionRevision: this.sessionRevision,
        streams: this.forgetful ? {} : { ...this.streams },
      });
    }
    this.revision += 1;
    this.pending.push(event);
  }
}

function stable(event: { type: string; data: unknown; metadata: unknown }): NewEvent {
  const { type, data, metadata } = event;
  const isBytes = data instanceof Uint8Array;
  return {
    id: randomUUID(),
    type,
    data: isBytes ? data : (data as JsonObject),
    metadata: metadata as JsonObject,
  };
}
