const block = 512;

export interface ArchiveEntry {
  readonly path: string;
  readonly mode: number;
  /** A directory has no content. */
  readonly content?: Buffer;
}

/** A small ustar archive in memory, for putting our own files into a container. */
export function archiveOf(entries: readonly ArchiveEntry[]): Buffer {
  const parts = entries.flatMap((entry) => {
    const content = entry.content ?? Buffer.alloc(0);
    return [
      headerOf(entry, content.length),
      content,
      Buffer.alloc((block - (content.length % block)) % block),
    ];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * block)]);
}

function headerOf({ path, mode, content }: ArchiveEntry, size: number): Buffer {
  if (Buffer.byteLength(path) > 99) throw new Error(`${path} is too long for a small archive`);
  const header = Buffer.alloc(block);
  const octal = (value: number, at: number, width: number) =>
    header.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1');
  header.write(path, 0, 'utf8');
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  header.write('        ', 148, 'latin1');
  header.write(content ? '0' : '5', 156, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}
