import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isBusy, openDatabase } from './sqlite';

export class DataDirectoryInUse extends Error {
  readonly code = 'data_directory_in_use';
  constructor(directory: string, holder: string) {
    super(
      `${directory} is in use by process ${holder}: stop that process or name another directory`,
    );
    this.name = 'DataDirectoryInUse';
  }
}

/**
 * Holds the directory for this process alone until released. The lock is the operating system's, taken
 * by an exclusive transaction on a file of its own: it dies with the process, however that ends. The
 * process id beside it is for the message only.
 */
export function lockDirectory(directory: string): { release(): void } {
  const pidFile = join(directory, 'lock.pid');
  const database = openDatabase(join(directory, 'lock.db'));
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (isBusy(error)) throw new DataDirectoryInUse(directory, holderIn(pidFile));
    throw error;
  }
  writeFileSync(pidFile, `${process.pid}\n`, { mode: 0o600 });
  return { release: () => database.close() };
}

function holderIn(pidFile: string): string {
  try {
    return readFileSync(pidFile, 'utf8').trim() || 'unknown';
  } catch (error) {
    // The holder may be between taking the lock and writing its id.
    return error instanceof Error ? `unknown (${error.message})` : 'unknown';
  }
}
