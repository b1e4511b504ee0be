import { randomUUID } from 'node:crypto';
import { EventStoreDBClient } from '@eventstore/db-client';
import { connectEventStore } from '../connect';
import type { EventStore, NewEvent, RecordedEvent, SubscriptionItem } from '../port';
import type { EventStoreSettings } from '../settings';

/** What the tests may count on; the others skip and say why. */
export interface Permissions {
  readonly mayBeKilled: boolean;
  readonly hasPassword: boolean;
}

export const itIf =
  (condition: boolean, reason: string) => (title: string, run: () => Promise<void>) =>
    condition ? it(title, run) : it.skip(`${title} (skipped: ${reason})`, run);

export interface ContractServer {
  /** With user and password in it where there are any. */
  readonly url: string;
  /** What the server itself refuses beyond, when that is known. */
  readonly maxAppendBytes?: number;
  kill?(): Promise<unknown>;
  restart?(): Promise<unknown>;
  stop(): Promise<unknown>;
}

/** One server and one connection for a whole suite; every test uses streams of its own. */
export class Bench {
  private opened: { server: ContractServer; store: EventStore } | undefined;
  private readonly more: EventStore[] = [];
  private readonly run = randomUUID().slice(0, 8);
  private streams = 0;

  constructor(private readonly openServer: () => Promise<ContractServer>) {}

  async open(): Promise<void> {
    const server = await this.openServer();
    this.opened = { server, store: connectEventStore({ url: server.url }) };
  }

  async close(): Promise<void> {
    await this.opened?.store.close();
    for (const store of this.more) await store.close();
    await this.opened?.server.stop();
  }

  get server(): ContractServer {
    if (!this.opened) throw new Error('the server is not open');
    return this.opened.server;
  }

  get store(): EventStore {
    if (!this.opened) throw new Error('the server is not open');
    return this.opened.store;
  }

  /** Another connection, closed with the suite. */
  connect(settings: Partial<EventStoreSettings> = {}): EventStore {
    const store = connectEventStore({ url: this.server.url, ...settings });
    this.more.push(store);
    return store;
  }

  /** A name that nobody has used, on this server or by this process. */
  stream(name = 'stream'): string {
    return `contract-${this.run}-${name}-${++this.streams}`;
  }

  /** The vendor's client, for what the port has no verb for. */
  async vendor<T>(use: (client: EventStoreDBClient) => Promise<T>): Promise<T> {
    const client = EventStoreDBClient.connectionString(this.server.url);
    try {
      return await use(client);
    } finally {
      await client.dispose();
    }
  }

  async fill(stream: string, count: number, size = 8): Promise<NewEvent[]> {
    const events = Array.from({ length: count }, (_, n) => event({ n, padding: 'x'.repeat(size) }));
    for (let at = 0; at < count; at += 500) {
      await this.store.append(stream, at === 0 ? 'none' : at - 1, events.slice(at, at + 500));
    }
    return events;
  }

  /** Metadata of a stream, as the port's users set it. */
  async setMetadata(stream: string, metadata: Record<string, number>): Promise<void> {
    const set = { id: randomUUID(), type: '$metadata', data: metadata };
    await this.store.append(`$$${stream}`, 'any', [set]);
  }
}

export const event = (data: NewEvent['data'], type = 'Happened'): NewEvent => ({
  id: randomUUID(),
  type,
  data,
});

export const events = (count: number): NewEvent[] =>
  Array.from({ length: count }, (_, n) => event({ n }));

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const seen: T[] = [];
  for await (const item of items) seen.push(item);
  return seen;
}

export const ids = (recorded: readonly { readonly id: string }[]): string[] =>
  recorded.map(({ id }) => id);
export const revisions = (recorded: readonly RecordedEvent[]): number[] =>
  recorded.map(({ revision }) => revision);
export const numbers = (count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, n) => from + n);

/** Collects in the background what a subscription delivers. */
export class Collector {
  readonly items: SubscriptionItem[] = [];
  readonly ended: Promise<void>;
  private readonly stopping = new AbortController();
  private waiting: (() => void)[] = [];
  private fault: unknown;

  constructor(
    subscribe: (signal: AbortSignal) => AsyncIterable<SubscriptionItem>,
    private readonly perItem: () => Promise<void> | void = () => undefined,
  ) {
    this.ended = this.collect(subscribe(this.stopping.signal)).catch((fault) => {
      this.fault = fault;
      this.woken();
      throw fault;
    });
    this.ended.catch(() => undefined);
  }

  get events(): RecordedEvent[] {
    return this.items.flatMap((item) => (item.kind === 'event' ? [item.event] : []));
  }

  /** Fails with the subscription's own fault, or by the test's time limit. */
  async until(enough: (collector: Collector) => boolean): Promise<this> {
    while (!enough(this)) {
      if (this.fault !== undefined) throw this.fault;
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    return this;
  }

  untilCaughtUp(): Promise<this> {
    return this.until(({ items }) => items.some(({ kind }) => kind === 'caughtUp'));
  }

  untilEvents(count: number): Promise<this> {
    return this.until(() => this.events.length >= count);
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.ended;
  }

  private async collect(items: AsyncIterable<SubscriptionItem>): Promise<void> {
    for await (const item of items) {
      this.items.push(item);
      this.woken();
      await this.perItem();
    }
    this.woken();
  }

  private woken(): void {
    const { waiting } = this;
    this.waiting = [];
    for (const wake of waiting) wake();
  }
}

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms));
