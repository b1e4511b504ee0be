import {
  type ConnectionOptions,
  connect,
  ErrorCode,
  Events,
  headers,
  type Msg,
  type NatsConnection,
  NatsError,
  type Subscription,
} from 'nats';
import { BusTimeout, BusUnavailable, MalformedMessage } from './errors';
import type { BusSettings } from './settings';
import { type TraceContext, traceFrom } from './trace';

export interface Incoming {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly trace?: TraceContext;
}

export interface RequestOptions {
  readonly timeoutMs: number;
  readonly trace?: TraceContext;
}

export interface ServeOptions {
  /** Every message goes to one member of the group; without a group to every subscriber. */
  readonly queue?: string;
  /** How many messages are worked on at once; the rest wait in order. */
  readonly concurrency?: number;
}

/** Answers a request, or returns nothing for a message that wants no answer. */
export type Handler = (message: Incoming) => Promise<Uint8Array | undefined>;

export interface Bus {
  readonly connected: boolean;
  /** For what the bus does not cover: JetStream. */
  readonly connection: NatsConnection;
  /** Throws `BusUnavailable` when nobody took the request, `BusTimeout` when its outcome is not known. */
  request(subject: string, data: Uint8Array, options: RequestOptions): Promise<Uint8Array>;
  /** At most once: whoever publishes sends again from its own durable state. */
  publish(subject: string, data: Uint8Array): void;
  serve(subject: string, options: ServeOptions, handler: Handler): Service;
  /** Lets work under way finish, then disconnects. */
  close(): Promise<void>;
}

export interface Service {
  /** Takes no further message and returns when those under way are done. */
  stop(): Promise<void>;
}

/** A handler that throws answers nothing: the peer's timeout tells it that the outcome is not known. */
export type OnFault = (fault: unknown, subject: string) => void;

/**
 * Waits for NATS at the start, unless it refuses the credentials, and reconnects for ever afterwards: a
 * process outlives its server, and says through `connected` and `BusUnavailable` what it cannot do meanwhile.
 */
export async function connectBus(settings: BusSettings, onFault: OnFault): Promise<Bus> {
  for (;;) {
    try {
      return new NatsBus(await connect(optionsOf(settings)), onFault);
    } catch (fault) {
      if (!isUnreachable(fault)) throw fault;
      onFault(fault, '');
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }
}

const optionsOf = (settings: BusSettings): ConnectionOptions => ({
  servers: settings.url,
  name: settings.name,
  user: settings.user,
  pass: settings.password,
  inboxPrefix: settings.inboxPrefix,
  maxReconnectAttempts: -1,
  reconnectTimeWait: 250,
  reconnectJitter: 100,
  pingInterval: 5_000,
  maxPingOut: 2,
  ignoreAuthErrorAbort: true,
  // A stack trace for every request costs more than the request.
  noAsyncTraces: true,
});

const isUnreachable = (fault: unknown): boolean =>
  fault instanceof NatsError &&
  [ErrorCode.ConnectionRefused, ErrorCode.Timeout, ErrorCode.ConnectionTimeout].includes(
    fault.code as ErrorCode,
  );

class NatsBus implements Bus {
  connected = true;
  private readonly services = new Set<NatsService>();

  constructor(
    readonly connection: NatsConnection,
    private readonly onFault: OnFault,
  ) {
    void this.watch();
  }

  async request(
    subject: string,
    data: Uint8Array,
    { timeoutMs, trace }: RequestOptions,
  ): Promise<Uint8Array> {
    // The client would buffer a request made while it is disconnected and send it much later.
    if (!this.connected) throw new BusUnavailable(subject, 'not connected to NATS');
    try {
      const reply = await this.connection.request(subject, data, {
        timeout: timeoutMs,
        headers: trace && traceHeaders(trace),
      });
      return reply.data;
    } catch (error) {
      throw translated(error, subject, timeoutMs);
    }
  }

  publish(subject: string, data: Uint8Array): void {
    if (!this.connected) return;
    this.connection.publish(subject, data);
  }

  serve(subject: string, options: ServeOptions, handler: Handler): Service {
    const subscription = this.connection.subscribe(subject, { queue: options.queue });
    const service = new NatsService(subscription, options.concurrency ?? 64, handler, this.onFault);
    this.services.add(service);
    return service;
  }

  async close(): Promise<void> {
    await Promise.all([...this.services].map((service) => service.stop()));
    await this.connection.close();
  }

  private async watch(): Promise<void> {
    for await (const status of this.connection.status()) {
      if (status.type === Events.Disconnect) this.connected = false;
      if (status.type === Events.Reconnect) this.connected = true;
      if (status.type === Events.Error) {
        const { operation = '', subject = '' } = status.permissionContext ?? {};
        this.onFault(new Error(`NATS: ${status.data} ${operation} ${subject}`.trim()), subject);
      }
    }
  }
}

class NatsService implements Service {
  private readonly underWay = new Set<Promise<void>>();
  private readonly loop: Promise<void>;

  constructor(
    private readonly subscription: Subscription,
    private readonly concurrency: number,
    private readonly handler: Handler,
    private readonly onFault: OnFault,
  ) {
    // A subscription that the server does not permit ends at once.
    this.loop = this.run().catch((fault) => this.onFault(fault, subscription.getSubject()));
  }

  async stop(): Promise<void> {
    if (!this.subscription.isClosed()) this.subscription.unsubscribe();
    await this.loop;
    await Promise.all(this.underWay);
  }

  private async run(): Promise<void> {
    const isAddressed = addressedTo(this.subscription.getSubject());
    for await (const message of this.subscription) {
      if (!isAddressed(message.subject)) {
        this.onFault(new MalformedMessage('sent to another subject'), message.subject);
        continue;
      }
      const work = this.answer(message).finally(() => this.underWay.delete(work));
      this.underWay.add(work);
      if (this.underWay.size >= this.concurrency) await Promise.race(this.underWay);
    }
  }

  private async answer(message: Msg): Promise<void> {
    const trace = traceFrom(
      message.headers?.get(requestIdHeader),
      message.headers?.get(traceparentHeader),
    );
    try {
      const { subject, data } = message;
      const reply = await this.handler({ subject, data, ...(trace ? { trace } : {}) });
      if (reply !== undefined && message.reply) message.respond(reply);
    } catch (fault) {
      this.onFault(fault, message.subject);
    }
  }
}

/**
 * Whoever may make JetStream consumers may have stored messages delivered to any subscription, but under
 * the subject that they were published to: what a permission says about publishing holds for that one.
 */
function addressedTo(pattern: string): (subject: string) => boolean {
  const wanted = pattern.split('.');
  const open = wanted.at(-1) === '>';
  return (subject) => {
    const tokens = subject.split('.');
    if (open ? tokens.length < wanted.length : tokens.length !== wanted.length) return false;
    return wanted.every((token, at) => token === '>' || token === '*' || token === tokens[at]);
  };
}

const requestIdHeader = 'x-request-id';
const traceparentHeader = 'traceparent';

function traceHeaders(trace: TraceContext) {
  const carried = headers();
  carried.set(requestIdHeader, trace.requestId);
  if (trace.traceparent) carried.set(traceparentHeader, trace.traceparent);
  return carried;
}

function translated(error: unknown, subject: string, timeoutMs: number): Error {
  if (!(error instanceof NatsError)) return error as Error;
  if (error.code === ErrorCode.Timeout) return new BusTimeout(subject, timeoutMs, { cause: error });
  if (error.code === ErrorCode.NoResponders) {
    return new BusUnavailable(subject, 'no process listens', { cause: error });
  }
  // Cut off while the request was out: it may have arrived.
  return new BusTimeout(subject, timeoutMs, { cause: error });
}
