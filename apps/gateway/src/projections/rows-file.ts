import { createHash, randomUUID } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Head } from './row-store';
import { ROW_VERSION, type SessionRow } from './session-row';

export interface StoredRows {
  readonly head: Head;
  readonly rows: readonly SessionRow[];
}

const FORMAT = 'vmux-session-rows';
const ROWS_PER_WRITE = 500;

/**
 * One line of JSON that says how far the rows follow, one for each row, and one with the digest of all
 * before it. Whatever is not exactly that counts as nothing.
 */
export class RowsFile {
  constructor(private readonly path: string) {}

  /** Null when there is no file, or none of this version. Throws for one that is damaged. */
  async load(): Promise<StoredRows | null> {
    const file = await open(this.path).catch(orNoFile);
    if (!file) return null;
    try {
      return await read(file);
    } finally {
      await file.close();
    }
  }

  /** Under another name first: a crash leaves the old file or the new one. */
  async save(head: Head, rows: readonly SessionRow[]): Promise<void> {
    const draft = `${this.path}.${randomUUID()}.tmp`;
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        await write(file, head, rows);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(draft, this.path);
    } catch (fault) {
      await rm(draft, { force: true });
      throw fault;
    }
    const directory = await open(dirname(this.path));
    await directory.sync().finally(() => directory.close());
  }
}

async function write(file: FileHandle, head: Head, rows: readonly SessionRow[]): Promise<void> {
  const digest = createHash('sha256');
  const put = async (values: readonly unknown[]) => {
    const text = values.map((value) => `${JSON.stringify(value)}\n`).join('');
    digest.update(text);
    await file.appendFile(text);
  };
  const position = head.position === null ? null : String(head.position);
  await put([
    { format: FORMAT, version: ROW_VERSION, position, last: head.last, rows: rows.length },
  ]);
  for (let at = 0; at < rows.length; at += ROWS_PER_WRITE)
    await put(rows.slice(at, at + ROWS_PER_WRITE));
  await file.appendFile(`${JSON.stringify({ sha256: digest.digest('hex') })}\n`);
}

async function read(file: FileHandle): Promise<StoredRows | null> {
  const digest = createHash('sha256');
  const rows: SessionRow[] = [];
  let first: FirstLine | null = null;
  for await (const line of file.readLines({ autoClose: false })) {
    if (first === null) {
      first = firstLine(line);
      if (!first) return null;
    } else if (rows.length < first.rows) {
      rows.push(JSON.parse(line));
    } else {
      const { sha256 } = JSON.parse(line);
      if (sha256 !== digest.digest('hex')) break;
      const { position, last } = first;
      return {
        head: { position: position === null ? null : BigInt(position), complete: true, last },
        rows,
      };
    }
    digest.update(`${line}\n`);
  }
  throw new Error('the file of the session list is damaged: it is built again');
}

interface FirstLine {
  readonly position: string | null;
  readonly last: Head['last'];
  readonly rows: number;
}

/** Null for another format or version. */
function firstLine(line: string): FirstLine | null {
  const said = JSON.parse(line);
  return said?.format === FORMAT && said.version === ROW_VERSION ? said : null;
}

function orNoFile(fault: unknown): null {
  if (fault instanceof Error && 'code' in fault && fault.code === 'ENOENT') return null;
  throw fault;
}
