import type { FastifyReply } from 'fastify';
import { bodyOf } from './error.filter';
import type { Held } from './followers';
import { Outgoing } from './outgoing';
import { apiErrorOf } from './translate';

export interface SseEvent {
  readonly event?: string;
  readonly id?: string;
  readonly data: unknown;
}

/** Server-sent events, with comments in between so that silence is not taken for a dead connection. */
export class EventStream {
  private readonly out: Outgoing;
  private keepAlive: NodeJS.Timeout | undefined;

  constructor(
    reply: FastifyReply,
    private readonly held: Pick<Held, 'signal' | 'keepAliveMs'>,
  ) {
    const headers = {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
    };
    this.out = new Outgoing(reply, headers, held.signal);
  }

  get signal(): AbortSignal {
    return this.out.signal;
  }

  /** Nothing was sent before: a fault until here is answered as any other. */
  begin(): void {
    this.out.begin();
    this.out.writeIfIdle(': hello\n\n');
    const stayAlive = () => this.out.writeIfIdle(': keep-alive\n\n');
    this.keepAlive = setInterval(stayAlive, this.held.keepAliveMs);
  }

  send({ event, id, data }: SseEvent): Promise<void> {
    const lines = [
      ...(event === undefined ? [] : [`event: ${event}`]),
      ...(id === undefined ? [] : [`id: ${id}`]),
      `data: ${JSON.stringify(data)}`,
    ];
    return this.out.write(`${lines.join('\n')}\n\n`);
  }

  /** Runs the work and ends the stream with it; a fault is told as `event: error`. */
  async run(work: () => Promise<void>, onFault: (fault: unknown) => void): Promise<void> {
    this.begin();
    try {
      await work();
    } catch (fault) {
      if (!this.signal.aborted) {
        onFault(fault);
        await this.send({ event: 'error', data: bodyOf(apiErrorOf(fault)) });
      }
    } finally {
      clearInterval(this.keepAlive);
      this.out.end();
    }
  }
}

export const wantsEvents = (accept: string | undefined): boolean =>
  /(^|,)\s*text\/event-stream\s*(;|,|$)/i.test(accept ?? '');
