import { join } from 'node:path';
import type { EventStore } from '@vmux/event-store';
import type { SessionIndex } from '../application/session-index';
import { Follower, type FollowerLog } from './follower';
import { MemoryRows } from './memory-rows';
import { type OwnerUsage, ProjectedIndex } from './projected-index';
import { RedisRows } from './redis-rows';
import type { Head } from './row-store';

export interface IndexOptions {
  readonly store: EventStore;
  /** With it the rows are in Redis, and several gateways share them. */
  readonly redisUrl: string | null;
  /** Without Redis: where they are kept over a restart; null: nowhere. */
  readonly dataDir: string | null;
  readonly log: FollowerLog;
  /** When to begin to read histories; at once without it. */
  readonly begin?: Promise<void>;
  /** How long `after` waits. */
  readonly waitMs?: number;
}

export interface RunningIndex extends SessionIndex {
  usage(owner: string, now: number): Promise<OwnerUsage>;
  head(): Promise<Head>;
  /** Forgets everything and replays it from zero; lists are unavailable until that is done. */
  rebuild(): Promise<void>;
  stop(): Promise<void>;
}

/** Needs neither Redis nor the event store to be there when it starts. */
export function startSessionIndex(options: IndexOptions): RunningIndex {
  const { store, redisUrl, dataDir, log, begin, waitMs = 2_000 } = options;
  const onFault = (fault: unknown) => log.warn({ fault }, 'the session list');
  const rows =
    redisUrl === null
      ? new MemoryRows({ file: dataDir && join(dataDir, 'session-rows.jsonl'), onFault })
      : new RedisRows({ url: redisUrl, onFault });
  const index = new ProjectedIndex(rows, waitMs);
  const follower = new Follower(store, rows, log, begin);
  return {
    list: (filter, page) => index.list(filter, page),
    live: (owner) => index.live(owner),
    usage: (owner, now) => index.usage(owner, now),
    head: () => rows.head(),
    rebuild: () => follower.rebuild(),
    stop: async () => {
      await follower.stop();
      await rows.close();
    },
  };
}
