import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { Failure } from '../failure';
import type { BundledFile } from './files';

const block = 512;
const typeOf = { file: '0', link: '2', directory: '5', extended: 'x' } as const;

/** A tar archive of the files, the same bytes for the same files: owners and access times are not in it. */
export async function* tarOf(
  root: string,
  files: readonly BundledFile[],
): AsyncGenerator<Uint8Array> {
  for (const file of files) {
    const records = extendedRecords(file);
    if (records.length > 0) {
      yield header({ ...file, path: 'extended', target: '', bytes: records.length }, 'extended');
      yield padded(records);
    }
    yield header(file, file.kind);
    if (file.kind === 'file') yield* contentOf(join(root, file.path), file);
  }
  yield Buffer.alloc(2 * block);
}

async function* contentOf(full: string, { path, bytes }: BundledFile): AsyncGenerator<Uint8Array> {
  if (bytes === 0) return;
  let read = 0;
  for await (const piece of createReadStream(full, { end: bytes - 1 })) {
    read += (piece as Buffer).length;
    yield piece as Buffer;
  }
  if (read !== bytes) throw new Failure(`${path} changed while it was read`, 'run it again');
  yield Buffer.alloc(paddingOf(bytes));
}

/** For names that the old header cannot hold: longer than 100 bytes, or not ASCII. */
function extendedRecords({ path, target }: BundledFile): Buffer {
  const records = [
    ...(fits(path) ? [] : [record('path', path)]),
    ...(fits(target) ? [] : [record('linkpath', target)]),
  ];
  return Buffer.from(records.join(''));
}

const fits = (text: string): boolean => /^[\x20-\x7e]{0,100}$/.test(text);

/** `<length> <key>=<value>\n`, where the length counts itself. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const size = Buffer.byteLength(rest);
  let length = size + String(size).length;
  if (String(length).length > String(size).length) length += 1;
  return `${length}${rest}`;
}

function header(file: Omit<BundledFile, 'kind'>, type: keyof typeof typeOf): Buffer {
  const bytes = Buffer.alloc(block);
  bytes.write(fits(file.path) ? file.path : 'long', 0, 100, 'latin1');
  bytes.write(octal(file.mode, 8), 100);
  bytes.write(octal(0, 8), 108);
  bytes.write(octal(0, 8), 116);
  bytes.write(octal(file.bytes, 12), 124);
  bytes.write(octal(Math.max(0, file.modifiedAt), 12), 136);
  bytes.write('        ', 148);
  bytes.write(typeOf[type], 156);
  bytes.write(fits(file.target) ? file.target : 'long', 157, 100, 'latin1');
  bytes.write('ustar\u000000', 257, 'latin1');
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, '0')}\u0000 `, 148, 'latin1');
  return bytes;
}

const octal = (value: number, width: number): string => value.toString(8).padStart(width - 1, '0');
const paddingOf = (bytes: number): number => (block - (bytes % block)) % block;
const padded = (bytes: Buffer): Buffer =>
  Buffer.concat([bytes, Buffer.alloc(paddingOf(bytes.length))]);
