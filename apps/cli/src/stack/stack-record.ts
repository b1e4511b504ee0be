import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { endProcess, identityOf, isAlive, type ProcessIdentity } from './process-identity';

/** Who runs the stack of a data directory, and where it serves. */
export interface StackRecord extends ProcessIdentity {
  /** Null until it serves. */
  readonly url: string | null;
  readonly parts: readonly (ProcessIdentity & { readonly name: string })[];
}

const fileOf = (directory: string): string => join(directory, 'stack.json');

/** The stack that runs on the data directory; null when none does. */
export function runningStack(directory: string): StackRecord | null {
  const record = readRecord(fileOf(directory));
  return record && isAlive(record) ? record : null;
}

/** One data directory has one stack: whoever holds the record may start it. */
export class StackClaim {
  private record: StackRecord;

  private constructor(
    private readonly file: string,
    self: ProcessIdentity,
  ) {
    this.record = { ...self, url: null, parts: [] };
  }

  /** Ends what a stack that was killed left running. Throws when another stack runs. */
  static async take(directory: string): Promise<StackClaim> {
    const self = identityOf(process.pid);
    if (!self) throw new Error('this process cannot find itself');
    const claim = new StackClaim(fileOf(directory), self);
    while (!claim.create()) {
      const other = readRecord(claim.file);
      if (other && isAlive(other))
        throw new Error(
          `the stack of this data directory already runs as process ${other.pid}${other.url ? ` at ${other.url}` : ''}`,
        );
      await claim.clear(other);
    }
    return claim;
  }

  serves(url: string): void {
    this.replace({ ...this.record, url });
  }

  /** Remembered, so that the next stack can end it when this one is killed. */
  hasPart(name: string, pid: number): void {
    const identity = identityOf(pid);
    if (!identity) return;
    const others = this.record.parts.filter((part) => part.name !== name);
    this.replace({ ...this.record, parts: [...others, { name, ...identity }] });
  }

  release(): void {
    if (readRecord(this.file)?.pid === this.record.pid) rmSync(this.file, { force: true });
  }

  private create(): boolean {
    const draft = this.draft(this.record);
    try {
      linkSync(draft, this.file);
      return true;
    } catch (fault) {
      if ((fault as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw fault;
    } finally {
      rmSync(draft, { force: true });
    }
  }

  /** Moved aside first: of two that find the same dead record, one moves it. */
  private async clear(dead: StackRecord | null): Promise<void> {
    await Promise.all((dead?.parts ?? []).map((part) => endProcess(part, 5_000)));
    const aside = `${this.file}.${process.pid}.old`;
    try {
      renameSync(this.file, aside);
    } catch (fault) {
      if ((fault as NodeJS.ErrnoException).code !== 'ENOENT') throw fault;
      return;
    }
    const moved = readRecord(aside);
    // Somebody was faster and runs by now: the record is theirs.
    if (moved && isAlive(moved)) renameSync(aside, this.file);
    else rmSync(aside, { force: true });
  }

  private replace(record: StackRecord): void {
    this.record = record;
    renameSync(this.draft(record), this.file);
  }

  private draft(record: StackRecord): string {
    const draft = `${this.file}.${process.pid}.tmp`;
    writeFileSync(draft, `${JSON.stringify(record)}\n`, { mode: 0o600 });
    return draft;
  }
}

/** Null when there is none, or none that can be read. */
function readRecord(file: string): StackRecord | null {
  try {
    const { pid, started, url, parts } = JSON.parse(readFileSync(file, 'utf8')) as StackRecord;
    return Number.isInteger(pid) && pid > 1 && typeof started === 'string'
      ? { pid, started, url: typeof url === 'string' ? url : null, parts: parts ?? [] }
      : null;
  } catch (fault) {
    if (fault instanceof SyntaxError || (fault as NodeJS.ErrnoException).code === 'ENOENT')
      return null;
    throw fault;
  }
}
