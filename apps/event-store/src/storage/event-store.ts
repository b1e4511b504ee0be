import { chmodSync, mkdirSync } from 'node:fs';
import { Checkpointer } from './checkpointer';
import { Committer, type CommitterEvents } from './committer';
import { WalSync } from './durability';
import { HighWaterMark } from './high-water-mark';
import { lockDirectory } from './lock';
import { EventReader } from './reader';
import { Scavenger } from './scavenger';
import { databaseFile, openEvents } from './schema';
import { isFailedSync, openDatabase } from './sqlite';
import { Writer } from './writer';
import { YoungGarbage } from './young-garbage';

export interface EventStoreOptions {
  readonly directory: string;
  readonly walLimitBytes: number;
  readonly events: Omit<CommitterEvents, 'idle' | 'syncing'> & {
    scavenged(count: number): void;
    /** Housekeeping failed; nothing is lost and it is tried again. */
    housekeepingFailed(error: unknown): void;
  };
}

export interface EventStore {
  readonly committer: Committer;
  readonly reader: EventReader;
  walBytes(): number;
  /** Finishes what was submitted, folds the log into the database and releases the directory. */
  close(): Promise<void>;
}

const AGE_CHECK_MS = 60_000;
const SCAVENGE_PAUSE_MS = 5;

export function openEventStore({
  directory,
  walLimitBytes,
  events,
}: EventStoreOptions): EventStore {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  chmodSync(directory, 0o700);
  const housekeepingFailed = (error: unknown): void =>
    isFailedSync(error) ? events.fatal(error) : events.housekeepingFailed(error);
  const lock = lockDirectory(directory);
  const mark = new HighWaterMark(directory);
  const database = openEvents(directory, mark);
  const readDatabase = openDatabase(databaseFile(directory), { timeoutMs: 5000 });
  const reader = new EventReader(readDatabase);
  const writer = new Writer(database);
  const wal = new WalSync(directory);
  mark.write(reader.lastPosition());
  const checkpointer = new Checkpointer(directory, database, walLimitBytes, housekeepingFailed);
  const scavenger = new Scavenger(database);
  const garbage = new YoungGarbage();

  let nextStep: NodeJS.Timeout | undefined;
  const scavenge = (): void => {
    try {
      const count = scavenger.step();
      if (count === 0) return;
      events.scavenged(count);
      // Without appends nothing else would run the next step.
      clearTimeout(nextStep);
      nextStep = setTimeout(() => committer.wake(), SCAVENGE_PAUSE_MS);
    } catch (error) {
      housekeepingFailed(error);
    }
  };

  const committer = new Committer(database, writer, reader, wal, mark, {
    ...events,
    committed: (group) => {
      if (group.events > 0) scavenger.notice();
      checkpointer.committed(group.bytes);
      events.committed(group);
    },
    syncing: (bytes) => garbage.made(bytes),
    idle: () => {
      scavenge();
      return checkpointer.between();
    },
  });
  const ageCheck = setInterval(() => {
    scavenger.noticeAge();
    committer.wake();
  }, AGE_CHECK_MS);
  ageCheck.unref();

  return {
    committer,
    reader,
    walBytes: () => checkpointer.walBytes,
    close: async () => {
      clearInterval(ageCheck);
      clearTimeout(nextStep);
      await committer.stopped();
      await checkpointer.close();
      wal.close();
      readDatabase.close();
      // The last connection to close checkpoints, syncs and removes the log.
      database.close();
      mark.close();
      lock.release();
    },
  };
}
