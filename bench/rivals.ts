import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import type { EventStore, ExpectedRevision } from '@vmux/event-store';
import type { NatsConnection } from 'nats';

/** Appends for a while, 16 in flight. */
export interface Rival {
  /** Returns how many were acknowledged. */
  append(data: Uint8Array, milliseconds: number): Promise<number>;
}

export const IN_FLIGHT = 16;

/** Sixteen writers, each at the exact revisions of its own stream, through the port. */
export function portRival(store: EventStore): Rival {
  const heads: ExpectedRevision[] = Array.from({ length: IN_FLIGHT }, () => 'none');
  const run = randomUUID();
  return {
    async append(data, milliseconds) {
      const end = performance.now() + milliseconds;
      const counts = heads.map(async (_, writer) => {
        let count = 0;
        for (; performance.now() < end; count++) {
          const event = { id: randomUUID(), type: 'Measured', data };
          const head = heads[writer] ?? 'none';
          const { revision } = await store.append(`bench-${run}-${writer}`, head, [event]);
          heads[writer] = revision;
        }
        return count;
      });
      return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
    },
  };
}

/**
 * The same engine in this process: sixteen inserts per transaction and a sync of the log at every commit
 * (synchronous=FULL), with the tables and the index that a store needs and SQLite's own checkpoints.
 */
export class SqliteRival implements Rival {
  private readonly database: InstanceType<typeof DatabaseSync>;
  private readonly revisions = Array.from({ length: IN_FLIGHT }, () => 0);

  constructor(directory: string) {
    this.database = new DatabaseSync(join(directory, 'rival.db'));
    this.database.exec(`
      PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768;
      CREATE TABLE events (position INTEGER PRIMARY KEY, stream INTEGER NOT NULL, revision INTEGER NOT NULL,
        id TEXT NOT NULL, type TEXT NOT NULL, created_ms INTEGER NOT NULL, data BLOB NOT NULL);
      CREATE UNIQUE INDEX events_of_stream ON events (stream, revision);`);
  }

  async append(data: Uint8Array, milliseconds: number): Promise<number> {
    const insert = this.database.prepare(
      'INSERT INTO events (stream, revision, id, type, created_ms, data) VALUES (?, ?, ?, ?, ?, ?)',
    );
    const end = performance.now() + milliseconds;
    let count = 0;
    for (; performance.now() < end; count += IN_FLIGHT) {
      this.database.exec('BEGIN IMMEDIATE');
      for (let stream = 0; stream < IN_FLIGHT; stream++) {
        const revision = this.revisions[stream] ?? 0;
        insert.run(stream, revision, randomUUID(), 'Measured', Date.now(), data);
        this.revisions[stream] = revision + 1;
      }
      this.database.exec('COMMIT');
    }
    return count;
  }

  fill(stream: number, count: number, data: Uint8Array): void {
    const insert = this.database.prepare(
      "INSERT INTO events (stream, revision, id, type, created_ms, data) VALUES (?, ?, ?, 'Measured', ?, ?)",
    );
    this.database.exec('BEGIN');
    for (let n = 0; n < count; n++) insert.run(stream, n, randomUUID(), Date.now(), data);
    this.database.exec('COMMIT');
  }

  /** Every event as an object, as the port gives it. */
  read(stream: number): number {
    const select = this.database.prepare(
      'SELECT position, revision, id, type, created_ms, data FROM events WHERE stream = ? ORDER BY revision',
    );
    let count = 0;
    for (const row of select.iterate(stream)) if (row) count++;
    return count;
  }

  close(): void {
    this.database.close();
  }
}

/** Publishing with acknowledgement into a stream with file storage. The server does not sync. */
export async function jetStreamRival(connection: NatsConnection): Promise<Rival> {
  const manager = await connection.jetstreamManager();
  await manager.streams.add({ name: 'bench', subjects: ['bench.>'] });
  const jetstream = connection.jetstream();
  return {
    async append(data, milliseconds) {
      const end = performance.now() + milliseconds;
      const counts = Array.from({ length: IN_FLIGHT }, async (_, writer) => {
        let count = 0;
        for (; performance.now() < end; count++) await jetstream.publish(`bench.${writer}`, data);
        return count;
      });
      return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
    },
  };
}
