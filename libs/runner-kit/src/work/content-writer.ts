import { createHash, type Hash } from 'node:crypto';
import { Chunker, type ChunkStore, type Extent, type FileContent } from '@vmux/artifacts';

/** From this size on a file has pieces of its own: the same file is the same pieces wherever it lies. */
const ALONE_BYTES = 128 * 1024;
const PUTS_AT_ONCE = 8;

interface Piece {
  digest: string;
}

interface OpenSegment {
  readonly piece: Piece;
  readonly offset: number;
  length: number;
}

/** A file's content, whose pieces get their names when they are full. */
export interface WrittenFile {
  content(): FileContent;
}

/**
 * Packs the bytes of files into pieces of the store: large files by themselves, small ones together. Holds
 * only what is on its way.
 */
export class ContentWriter {
  private piece: Piece = { digest: '' };
  private readonly puts = new Set<Promise<void>>();
  private fault: { readonly error: unknown } | undefined;
  private readonly chunker: Chunker;
  private file: FileWriting | undefined;

  constructor(private readonly store: ChunkStore) {
    this.chunker = new Chunker((chunk) => this.put(chunk));
  }

  begin(size: number): void {
    const alone = size >= ALONE_BYTES;
    if (alone) this.chunker.cut();
    this.file = { alone, hash: createHash('sha256'), extents: [], segments: [] };
  }

  /** Blocks come in order; returns when there is room for more. */
  async block(offset: number, bytes: Buffer): Promise<void> {
    const { file } = this;
    if (!file) throw new Error('no file is begun');
    file.hash.update(bytes);
    const last = file.extents.at(-1);
    if (last && last.offset + last.length === offset) last.length += bytes.length;
    else file.extents.push({ offset, length: bytes.length });
    for (let rest = bytes; rest.length > 0; ) {
      const { piece } = this;
      const at = this.chunker.pending;
      const taken = this.chunker.push(rest);
      const open = file.segments.at(-1);
      if (open?.piece === piece && open.offset + open.length === at) open.length += taken;
      else file.segments.push({ piece, offset: at, length: taken });
      rest = rest.subarray(taken);
    }
    while (this.puts.size >= PUTS_AT_ONCE && !this.fault) await Promise.race(this.puts);
    this.throwFault();
  }

  end(): WrittenFile {
    const { file } = this;
    if (!file) throw new Error('no file is begun');
    this.file = undefined;
    if (file.alone) this.chunker.cut();
    const digest = file.hash.digest('hex');
    const { extents, segments } = file;
    return {
      content: () => ({
        digest,
        extents,
        segments: segments.map(({ piece, offset, length }) => ({
          chunk: piece.digest,
          offset,
          length,
        })),
      }),
    };
  }

  /** Returns when every piece is stored and has its name. */
  async finish(): Promise<void> {
    this.chunker.cut();
    while (this.puts.size > 0) await Promise.all(this.puts);
    this.throwFault();
  }

  private put(chunk: Buffer): void {
    const { piece } = this;
    this.piece = { digest: '' };
    const done: Promise<void> = this.store
      .put(chunk)
      .then(
        ({ digest }) => {
          piece.digest = digest;
        },
        (error) => {
          this.fault ??= { error };
        },
      )
      .finally(() => this.puts.delete(done));
    this.puts.add(done);
  }

  private throwFault(): void {
    if (this.fault) throw this.fault.error;
  }
}

interface FileWriting {
  readonly alone: boolean;
  readonly hash: Hash;
  readonly extents: { offset: number; length: Extent['length'] }[];
  readonly segments: OpenSegment[];
}
