import { type CustomTransportStrategy, Server } from '@nestjs/microservices';
import { replyOf, SESSION_SERVICE_QUEUE } from '@vmux/events';
import { type Bus, encodeJson, type Incoming, type Service } from '@vmux/messaging';
import { firstValueFrom } from 'rxjs';
import type { Log } from '../application/log';

/** What a controller says about its subject: `@MessagePattern(subject, serving)`. */
export interface Serving {
  /** Every process hears the message, and none answers it. */
  readonly everyone?: boolean;
  readonly concurrency?: number;
}

/**
 * Nest's controllers over our bus. A controller gets the message as it came and gives back a reply;
 * a fault that it lets through becomes a reply that says so, and never the end of the process.
 */
export class BusServer extends Server implements CustomTransportStrategy {
  private services: Service[] = [];

  constructor(
    private readonly bus: Bus,
    private readonly log: Log,
  ) {
    super();
  }

  listen(callback: (fault?: unknown) => void): void {
    for (const [subject, handler] of this.messageHandlers) {
      const { everyone, concurrency }: Serving = handler.extras ?? {};
      const answer = async (message: Incoming) => {
        const result = await firstValueFrom(
          this.transformToObservable(await handler(message)),
        ).catch((fault: unknown) => {
          this.log.error({ subject: message.subject, fault }, 'a message could not be handled');
          return replyOf(fault);
        });
        return everyone ? undefined : encodeJson(result);
      };
      const options = everyone ? { concurrency } : { concurrency, queue: SESSION_SERVICE_QUEUE };
      this.services.push(this.bus.serve(subject, options, answer));
    }
    callback();
  }

  /** Takes no further message and returns when those under way are answered. */
  async close(): Promise<void> {
    await Promise.all(this.services.map((service) => service.stop()));
    this.services = [];
  }

  // Nest asks for these two; the bus reports its own state through readiness.
  override on(): void {}
  override unwrap<T>(): T {
    return this.bus as T;
  }
}
