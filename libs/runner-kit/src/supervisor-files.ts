import { ProtocolViolation } from './errors';
import { type FileEntry, readFileEntry, readOk } from './supervisor-answers';
import type { SupervisorConnection } from './supervisor-connection';
import { ask, WINDOW_BYTES } from './supervisor-requests';
import { readBytes, sendBytes } from './supervisor-streams';
import { BodyWriter, FRAME } from './wire';

export interface FileCall {
  /** As whom; the supervisor's own user without it. */
  readonly user?: string;
  readonly signal?: AbortSignal;
}

export type Bytes = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

const KEEP_MODE = 0xffff_ffff;
/** Of a directory: a hostile one has no end. */
const MAX_ENTRY_BYTES = 64 * 1024;

/** Files inside a sandbox, by absolute path, resolved in there by one of its own processes. */
export class SupervisorFiles {
  constructor(private readonly connection: SupervisorConnection) {}

  /** Of the link itself unless `followLink`. */
  async stat(path: string, call: FileCall & { followLink?: boolean } = {}): Promise<FileEntry> {
    const body = this.#body(path, call)
      .u8(call.followLink ? 1 : 0)
      .u32(WINDOW_BYTES);
    for await (const entry of this.#entries('FILE_STAT', FRAME.fileStat, body, call)) return entry;
    throw new ProtocolViolation('FILE_STAT: no entry');
  }

  /** Unsorted. */
  list(path: string, call: FileCall = {}): AsyncGenerator<FileEntry> {
    const body = this.#body(path, call).u32(WINDOW_BYTES);
    return this.#entries('FILE_LIST', FRAME.fileList, body, call);
  }

  read(
    path: string,
    call: FileCall & { offset?: number; length?: number } = {},
  ): AsyncGenerator<Buffer> {
    const body = this.#body(path, call)
      .u64(call.offset ?? 0)
      .u64(call.length ?? 'all')
      .u32(WINDOW_BYTES);
    const frameOf = (id: number) => body.frame(FRAME.fileRead, id);
    return readBytes(this.connection, 'FILE_READ', frameOf, call.signal);
  }

  /** All or nothing: the old file stays until every byte of the new one is on disk. */
  write(
    path: string,
    content: Bytes,
    call: FileCall & { mode?: number; makeParents?: boolean } = {},
  ): Promise<number> {
    const body = this.#body(path, call)
      .u32(call.mode ?? KEEP_MODE)
      .u8(call.makeParents ? 1 : 0);
    const frameOf = (id: number) => body.frame(FRAME.fileWrite, id);
    return sendBytes(this.connection, 'FILE_WRITE', frameOf, content, call.signal);
  }

  async remove(
    path: string,
    call: FileCall & { recursive?: boolean; missingIsFine?: boolean } = {},
  ): Promise<void> {
    const flags = (call.recursive ? 1 : 0) | (call.missingIsFine ? 2 : 0);
    await this.#askOk('FILE_REMOVE', FRAME.fileRemove, this.#body(path, call).u8(flags), call);
  }

  async makeDirectory(
    path: string,
    call: FileCall & { mode?: number; makeParents?: boolean } = {},
  ): Promise<void> {
    const body = this.#body(path, call)
      .u32(call.mode ?? 0o755)
      .u8(call.makeParents ? 1 : 0);
    await this.#askOk('FILE_MKDIR', FRAME.fileMkdir, body, call);
  }

  /** A pax archive of a directory's contents or of one file. */
  tarOut(
    path: string,
    call: FileCall & { oneFileSystem?: boolean; exclude?: readonly string[] } = {},
  ): AsyncGenerator<Buffer> {
    const exclude = call.exclude ?? [];
    const body = this.#body(path, call)
      .u8(call.oneFileSystem ? 1 : 0)
      .u16(exclude.length);
    for (const name of exclude) body.bytes(name);
    body.u32(WINDOW_BYTES);
    const frameOf = (id: number) => body.frame(FRAME.tarOut, id);
    return readBytes(this.connection, 'TAR_OUT', frameOf, call.signal);
  }

  /** Unpacks beneath a directory; resolves with the number of entries. */
  tarIn(
    path: string,
    archive: Bytes,
    call: FileCall & { keepOwners?: boolean; keepSetuid?: boolean } = {},
  ): Promise<number> {
    const body = this.#body(path, call).u8((call.keepOwners ? 1 : 0) | (call.keepSetuid ? 2 : 0));
    const frameOf = (id: number) => body.frame(FRAME.tarIn, id);
    return sendBytes(this.connection, 'TAR_IN', frameOf, archive, call.signal);
  }

  #body(path: string, call: FileCall): BodyWriter {
    return new BodyWriter().bytes(call.user ?? '').bytes(path);
  }

  #askOk(name: string, type: number, body: BodyWriter, call: FileCall): Promise<number> {
    const frameOf = (id: number) => body.frame(type, id);
    return ask(this.connection, name, frameOf, { [FRAME.ok]: readOk }, call.signal);
  }

  async *#entries(
    name: string,
    type: number,
    body: BodyWriter,
    call: FileCall,
  ): AsyncGenerator<FileEntry> {
    let held: Buffer = Buffer.alloc(0);
    const frameOf = (id: number) => body.frame(type, id);
    for await (const data of readBytes(this.connection, name, frameOf, call.signal)) {
      held = held.length === 0 ? data : Buffer.concat([held, data]);
      for (let read = readFileEntry(held); read; read = readFileEntry(held)) {
        held = held.subarray(read.size);
        yield read.entry;
      }
      if (held.length > MAX_ENTRY_BYTES) throw new ProtocolViolation(`${name}: an endless entry`);
    }
    if (held.length > 0) throw new ProtocolViolation(`${name}: half an entry`);
  }
}
