import type { FastifyReply } from 'fastify';
import type { Logger } from 'pino';
import type { Caller } from '../application/key-ring';
import type { LogItem } from '../application/log-cursor';
import type { LogEnd, LogReader, LogRequest } from '../application/log-reader';
import type { Followers } from '../http/followers';
import type { Metrics } from '../http/metrics';
import { Outgoing } from '../http/outgoing';
import { EventStream } from '../http/sse';
import { sseOf } from './log-sse';

export type LogQuery = Omit<LogRequest, 'signal'> & { readonly limit: number | null };

/** Delivers logs to HTTP readers, as fast as each of them reads. */
export class LogStreams {
  constructor(
    private readonly reader: LogReader,
    private readonly followers: Followers,
    private readonly metrics: Metrics,
    private readonly logger: Logger,
  ) {}

  /** The bytes as they are. Ends at a gap: what follows it is another read, from the offset named. */
  async raw(reply: FastifyReply, caller: Caller, query: LogQuery, name: string): Promise<void> {
    const held = this.followers.enter(caller);
    try {
      const out = new Outgoing(reply, rawHeaders(query, name), held.signal);
      const items = await this.reader.open({ ...query, signal: out.signal });
      // A follower may wait for its first byte; whoever reads what there is learns at once that it is a gap.
      const first = query.follow ? null : await items.next();
      const early = first && (first.done ? endOf(first.value) : stopAt(first.value));
      for (const [header, value] of Object.entries(early ?? {})) reply.header(header, value);
      out.begin();
      try {
        out.end(early ?? (await this.pump(out, first ?? (await items.next()), items, query.limit)));
      } catch (fault) {
        if (!out.signal.aborted)
          this.logger.warn({ err: fault, session: query.sessionId }, 'a log read was cut');
        out.cut();
      }
    } finally {
      held.leave();
    }
  }

  /** The same as events, gaps included, until the target has ended or the reader goes. */
  async events(
    reply: FastifyReply,
    caller: Caller,
    query: LogQuery,
    last: (stream: EventStream, end: LogEnd) => Promise<void>,
  ): Promise<void> {
    const held = this.followers.enter(caller);
    try {
      const stream = new EventStream(reply, held);
      const items = await this.reader.open({ ...query, signal: stream.signal });
      await stream.run(
        async () => {
          const end = await this.send(stream, items, query.limit);
          if (!stream.signal.aborted) await last(stream, end);
        },
        (fault) => this.logger.warn({ err: fault, session: query.sessionId }, 'a log read ended'),
      );
    } finally {
      held.leave();
    }
  }

  private async send(
    stream: EventStream,
    items: AsyncGenerator<LogItem, LogEnd>,
    limit: number | null,
  ): Promise<LogEnd> {
    let left = limit ?? Number.POSITIVE_INFINITY;
    for (;;) {
      const step = await items.next();
      if (step.done) return step.value;
      const item = shortened(step.value, left);
      await stream.send(sseOf(item));
      if (stream.signal.aborted) return { next: 0, over: false };
      if (item.kind !== 'bytes') continue;
      this.metrics.bytes.inc(item.bytes.length);
      left -= item.bytes.length;
      if (left > 0) continue;
      await items.return({ next: 0, over: false });
      return { next: item.offset + item.bytes.length, over: false };
    }
  }

  private async pump(
    out: Outgoing,
    first: IteratorResult<LogItem, LogEnd>,
    items: AsyncGenerator<LogItem, LogEnd>,
    limit: number | null,
  ): Promise<Trailers> {
    let left = limit ?? Number.POSITIVE_INFINITY;
    for (let step = first; ; step = await items.next()) {
      if (step.done) return endOf(step.value);
      const stop = stopAt(step.value);
      const item = shortened(step.value, left);
      if (item.kind === 'bytes') {
        await out.write(item.bytes);
        this.metrics.bytes.inc(item.bytes.length);
        left -= item.bytes.length;
      }
      const next = item.kind === 'bytes' ? item.offset + item.bytes.length : 0;
      const trailers = stop ?? (left <= 0 ? trailersOf(next, 'limit') : null);
      if (!trailers && !out.signal.aborted) continue;
      await items.return({ next: 0, over: false });
      return trailers ?? trailersOf(next, 'limit');
    }
  }
}

type Trailers = Readonly<Record<string, string>>;

const trailersOf = (next: number, end: 'gap' | 'limit' | 'end' | 'live'): Trailers => ({
  'vmux-next-offset': String(next),
  'vmux-log-end': end,
});

/** `end` when nothing can ever follow, `live` when more may come. */
const endOf = ({ next, over }: LogEnd): Trailers => trailersOf(next, over ? 'end' : 'live');

const stopAt = (item: LogItem): Trailers | null =>
  item.kind === 'gap'
    ? { ...trailersOf(item.to, 'gap'), 'vmux-gap': `${item.from}-${item.to}` }
    : null;

const shortened = (item: LogItem, left: number): LogItem =>
  item.kind === 'bytes' && item.bytes.length > left
    ? { ...item, bytes: item.bytes.subarray(0, left) }
    : item;

/** A browser saves it and never runs it. */
const rawHeaders = ({ offset }: LogQuery, name: string): Record<string, string> => ({
  'content-type': 'application/octet-stream',
  'content-disposition': `attachment; filename="${name}"`,
  'content-security-policy': "sandbox; default-src 'none'",
  'vmux-offset': String(offset),
  trailer: 'vmux-next-offset, vmux-log-end, vmux-gap',
});
