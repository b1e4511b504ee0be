import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { Failure } from '../failure';
import { type BundledFile, filesOf } from './files';
import { tarOf } from './tar';

export interface Bundle {
  readonly digest: string;
  readonly bytes: Buffer;
  readonly files: number;
  readonly leftOut: readonly string[];
  /** A file of its top level that asks for packages; null without one. */
  readonly manifest: string | null;
}

const maxBytes = 100 * 1024 * 1024;
/** Nothing of this size comes to the limit by compression. */
const maxUnpackedBytes = 20 * maxBytes;
const namedFiles = 3;
const manifests = ['pyproject.toml', 'requirements.txt', 'package.json', 'go.mod', 'Cargo.toml'];

/** The directory as it is sent to a session; null when there is nothing in it, or when it is everything. */
export async function bundleOf(directory: string): Promise<Bundle | null> {
  const isTooMuch = directory === '/' || directory === resolve(homedir());
  if (isTooMuch) return null;
  const { files, leftOut } = filesOf(directory);
  if (files.length === 0) return null;
  const total = files.reduce((sum, file) => sum + file.bytes, 0);
  if (total > maxUnpackedBytes) throw tooLarge(files);
  // Fast rather than small: it goes to this machine or once over the network.
  const packed = Readable.from(tarOf(directory, files)).compose(createGzip({ level: 1 }));
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of packed as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > maxBytes) throw tooLarge(files);
    pieces.push(piece);
  }
  const bytes = Buffer.concat(pieces);
  const digest = createHash('sha256').update(bytes).digest('hex');
  const manifest = files.find(({ path }) => manifests.includes(path))?.path ?? null;
  return { digest, bytes, files: files.length, leftOut, manifest };
}

function tooLarge(files: readonly BundledFile[]): Failure {
  const largest = [...files].sort((a, b) => b.bytes - a.bytes).slice(0, namedFiles);
  const named = largest.map(({ path, bytes }) => `${path} (${Math.ceil(bytes / 1024 / 1024)} MiB)`);
  return new Failure(
    `this directory is too large to send: more than ${maxBytes / 1024 / 1024} MiB packed; the largest files: ${named.join(', ')}`,
    'let .vmuxignore leave them out, or run with --no-bundle',
  );
}
