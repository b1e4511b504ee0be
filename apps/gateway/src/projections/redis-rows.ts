import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { IndexUnavailable } from '../application/session-index';
import { CLAIM, COMMIT, RELEASE } from './redis-scripts';
import { type Change, type Head, MAX_LIVE, NOTHING, type RowStore } from './row-store';
import { isLive, ROW_VERSION, type SessionRow } from './session-row';

export interface RedisRowsOptions {
  readonly url: string;
  readonly onFault: (fault: unknown) => void;
  readonly claimMs?: number;
}

/** In one slot of a Redis cluster, so that one script may change all of it. */
const ROOT = `vmux:{session-rows}:v${ROW_VERSION}`;
const HEAD = `${ROOT}:head`;
const CLAIMED = `${ROOT}:claim`;

interface StoredHead {
  /** Names the keys that the rows are under; new with every beginning from zero. */
  readonly life: string;
  readonly head: Head;
}

/**
 * Rows that several gateways share. One of them follows the histories at a time, as long as it renews its
 * claim; should two ever do so, the second one's change does not fit the head any more and is refused.
 */
export class RedisRows implements RowStore {
  private readonly redis: Redis;
  private readonly self = randomUUID();
  private readonly claimMs: number;
  private readonly triedOnce: Promise<void>;

  constructor({ url, onFault, claimMs = 3_000 }: RedisRowsOptions) {
    this.claimMs = claimMs;
    this.redis = new Redis(url, {
      // Lists fail at once while Redis is away, rather than wait for it.
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      commandTimeout: 5_000,
      connectTimeout: 5_000,
      retryStrategy: (attempt) => Math.min(100 * attempt, 2_000),
    });
    this.triedOnce = new Promise((resolve) => {
      for (const outcome of ['ready', 'close'] as const) this.redis.once(outcome, () => resolve());
    });
    let lastFault = '';
    this.redis.on('error', (fault: Error) => {
      if (fault.message !== lastFault) onFault(fault);
      lastFault = fault.message;
    });
    this.redis.on('ready', () => {
      lastFault = '';
    });
  }

  async head(): Promise<Head> {
    return (await this.stored())?.head ?? NOTHING;
  }

  async rows(ids: readonly string[]): Promise<ReadonlyMap<string, SessionRow>> {
    const stored = ids.length === 0 ? null : await this.stored();
    return new Map(
      stored ? (await this.rowsOf(stored.life, ids)).map((row) => [row.id, row] as const) : [],
    );
  }

  async commit({ from, to, rows }: Change): Promise<boolean> {
    const stored = await this.stored();
    if ((stored?.head.position ?? null) !== from.position) return false;
    const life = stored?.life ?? randomUUID();
    const known = await this.rowsOf(life, [...rows.keys()]);
    const owners = new Map(known.map(({ id, owner }) => [id, owner]));
    const changes = [...rows].flatMap(([id, row]) => {
      const owner = row?.owner ?? owners.get(id);
      if (owner === undefined) return [];
      const live = row !== null && isLive(row) ? '1' : '0';
      return [
        id,
        owner,
        row?.createdPosition ?? '0',
        live,
        row === null ? '' : JSON.stringify(row),
      ];
    });
    const done = await this.ask(() =>
      this.redis.eval(
        COMMIT,
        1,
        HEAD,
        stored?.life ?? '',
        life,
        textOf(from.position),
        textOf(to.position),
        JSON.stringify({ complete: to.complete, last: to.last }),
        keysOf(life),
        ...changes,
      ),
    );
    return done === 1;
  }

  async before(
    owner: string,
    position: bigint | null,
    count: number,
  ): Promise<readonly SessionRow[]> {
    const stored = await this.stored();
    if (!stored) return [];
    const { life } = stored;
    const highest = position === null ? '+inf' : `(${position}`;
    const key = `${keysOf(life)}owner:${owner}`;
    const ids = await this.ask(() =>
      this.redis.zrevrangebyscore(key, highest, '-inf', 'LIMIT', 0, count),
    );
    return this.rowsOf(life, ids);
  }

  async live(owner: string): Promise<readonly SessionRow[]> {
    const stored = await this.stored();
    if (!stored) return [];
    const key = `${keysOf(stored.life)}live:${owner}`;
    const ids = await this.ask(() => this.redis.zrevrange(key, 0, MAX_LIVE - 1));
    return this.rowsOf(stored.life, ids);
  }

  /** The head goes first: from then on nothing that is under way can change or show the old rows. */
  async clear(): Promise<void> {
    const stored = await this.stored();
    if (!stored) return;
    await this.ask(() => this.redis.del(HEAD));
    const match = `${keysOf(stored.life)}*`;
    for (let cursor = '0', first = true; first || cursor !== '0'; first = false) {
      const from = cursor;
      const [next, keys] = await this.ask(() =>
        this.redis.scan(from, 'MATCH', match, 'COUNT', 1000),
      );
      if (keys.length > 0) await this.ask(() => this.redis.unlink(...keys));
      cursor = next;
    }
  }

  async claim(): Promise<boolean> {
    const done = await this.ask(() =>
      this.redis.eval(CLAIM, 1, CLAIMED, this.self, String(this.claimMs)),
    );
    return done === 1;
  }

  async close(): Promise<void> {
    if (this.redis.status === 'ready')
      await this.redis.eval(RELEASE, 1, CLAIMED, this.self).catch(() => undefined);
    this.redis.disconnect();
  }

  private async stored(): Promise<StoredHead | null> {
    const { life, position, rest } = await this.ask(() => this.redis.hgetall(HEAD));
    if (!life || position === undefined || !rest) return null;
    const { complete, last } = JSON.parse(rest);
    return { life, head: { position: position === '' ? null : BigInt(position), complete, last } };
  }

  private async rowsOf(life: string, ids: readonly string[]): Promise<SessionRow[]> {
    if (ids.length === 0) return [];
    const texts = await this.ask(() => this.redis.hmget(`${keysOf(life)}rows`, ...ids));
    return texts.flatMap((text): SessionRow[] => (text === null ? [] : [JSON.parse(text)]));
  }

  private async ask<T>(question: () => Promise<T>): Promise<T> {
    await this.triedOnce;
    try {
      return await question();
    } catch (cause) {
      throw new IndexUnavailable('Redis does not answer', { cause });
    }
  }
}

const keysOf = (life: string): string => `${ROOT}:${life}:`;
const textOf = (position: bigint | null): string => (position === null ? '' : String(position));
