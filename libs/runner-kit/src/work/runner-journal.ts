import { type FileHandle, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Base } from '@vmux/events';
import type { SandboxId } from '../driver';

export interface Origin {
  readonly base: Base;
  readonly restoredDigest: string | null;
}

/**
 * What a runner must remember of its sandboxes across its own restarts and cannot ask them: which are
 * prepared, so that a workspace is never unpacked over work, and which signals were delivered, so that
 * none is delivered twice. One small file per sandbox, synced before the deed that it records.
 */
export class RunnerJournal {
  private constructor(private readonly directory: string) {}

  static async at(directory: string): Promise<RunnerJournal> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    return new RunnerJournal(directory);
  }

  async isPrepared(id: SandboxId): Promise<boolean> {
    return (await this.lines(id)).has('prepared');
  }

  /** With what the sandbox was made of and, if it was restored, the digest found: said again later. */
  async recordPrepared(id: SandboxId, origin: Origin): Promise<void> {
    await this.record(id, `origin ${JSON.stringify(origin)}\nprepared`);
  }

  /** Another runner prepared it; what it was made of the history says, if anybody knew. */
  async recordAdopted(id: SandboxId, base: Base | null): Promise<void> {
    if (await this.isPrepared(id)) return;
    if (base) await this.recordPrepared(id, { base, restoredDigest: null });
    else await this.record(id, 'prepared');
  }

  async originOf(id: SandboxId): Promise<Origin | undefined> {
    for (const line of await this.lines(id))
      if (line.startsWith('origin ') && line.endsWith('}'))
        return JSON.parse(line.slice('origin '.length)) as Origin;
    return undefined;
  }

  /** False when the signal was recorded before: it was delivered, or nobody knows whether it was. */
  async claimSignal(id: SandboxId, signalId: string): Promise<boolean> {
    if ((await this.lines(id)).has(`signal ${signalId}`)) return false;
    await this.record(id, `signal ${signalId}`);
    return true;
  }

  async forget(id: SandboxId): Promise<void> {
    await rm(this.fileOf(id), { force: true });
  }

  /** A runner that was killed may have destroyed a sandbox and not forgotten it: only these are there. */
  async keepOnly(there: () => Iterable<SandboxId>): Promise<void> {
    const written = await readdir(this.directory);
    const kept = new Set([...there()].map(nameOf));
    for (const name of written)
      if (!kept.has(name)) await rm(join(this.directory, name), { force: true });
  }

  private async lines(id: SandboxId): Promise<ReadonlySet<string>> {
    try {
      return new Set((await readFile(this.fileOf(id), 'utf8')).split('\n'));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Set();
      throw error;
    }
  }

  private async record(id: SandboxId, line: string): Promise<void> {
    await withFile(await open(this.fileOf(id), 'a', 0o600), async (file) => {
      // A torn last line of a crash is ended first, so that it cannot run into this one.
      await file.appendFile(`\n${line}\n`);
      // Its name too, and both at once: a disk that has other work makes each wait.
      await withFile(await open(this.directory, 'r'), (directory) =>
        Promise.all([file.datasync(), directory.sync()]),
      );
    });
  }

  private fileOf(id: SandboxId): string {
    return join(this.directory, nameOf(id));
  }
}

const nameOf = ({ sessionId, epoch, instance }: SandboxId): string =>
  `${sessionId}.${epoch}.${instance}`;

async function withFile(
  file: FileHandle,
  use: (file: FileHandle) => Promise<unknown>,
): Promise<void> {
  try {
    await use(file);
  } finally {
    await file.close();
  }
}
