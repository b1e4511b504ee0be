import { parentPort, workerData } from 'node:worker_threads';
import { openDatabase } from './sqlite';

/** Runs checkpoints on a connection and a thread of its own: they write and sync whole files. */
const port = parentPort;
if (!port) throw new Error('started outside a worker thread');
const database = openDatabase(String(workerData), { timeoutMs: 5000 });
database.exec('PRAGMA synchronous = NORMAL');
database.exec('PRAGMA wal_autocheckpoint = 0');

port.on('message', (mode: 'PASSIVE' | 'RESTART' | 'CLOSE') => {
  if (mode === 'CLOSE') {
    database.close();
    port.close();
    return;
  }
  try {
    const [busy, frames, moved] = database.prepare(`PRAGMA wal_checkpoint(${mode})`).get() ?? [];
    port.postMessage({ busy, frames, moved });
  } catch (error) {
    const { message, sqliteExtendedCode } = error as Error & { sqliteExtendedCode?: number };
    port.postMessage({ failure: { message, sqliteExtendedCode } });
  }
});
