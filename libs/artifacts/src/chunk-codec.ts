import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import * as zlib from 'node:zlib';
import { MAX_CHUNK_BYTES } from './chunks';

/** `u8 codec · u32 clear length · payload`, little-endian. */
const HEADER = 5;
const RAW = 0;
const ZSTD = 1;

export class ChunkUnreadable extends Error {
  readonly code = 'chunk_unreadable';
  constructor(detail: string) {
    super(`a stored piece cannot be read: ${detail}`);
    this.name = 'ChunkUnreadable';
  }
}

/** What is kept of a piece, in two parts: compressed where that makes it smaller. */
export async function encodeChunk(clear: Uint8Array): Promise<readonly [Buffer, Uint8Array]> {
  if (clear.byteLength > MAX_CHUNK_BYTES) throw new RangeError('the piece is too large');
  const packed = looksPacked(clear) ? clear : await compress(clear);
  const raw = packed.byteLength >= clear.byteLength;
  const header = Buffer.alloc(HEADER);
  header.writeUInt8(raw ? RAW : ZSTD, 0);
  header.writeUInt32LE(clear.byteLength, 1);
  return [header, raw ? clear : packed];
}

const SAMPLE = 2048;

/** A little of its beginning and of its middle does not shrink: media and archives are left as they are. */
function looksPacked(clear: Uint8Array): boolean {
  if (clear.byteLength < 32 * SAMPLE) return false;
  const middle = clear.byteLength >> 1;
  const sample = Buffer.concat([
    clear.subarray(0, SAMPLE),
    clear.subarray(middle, middle + SAMPLE),
  ]);
  return zlib.deflateRawSync(sample, { level: 1 }).length > sample.length * 0.97;
}

/** The clear bytes. What comes from a store is not trusted: nothing larger than a piece is ever made. */
export async function decodeChunk(stored: Buffer): Promise<Buffer> {
  if (stored.length < HEADER) throw new ChunkUnreadable('it is cut off');
  const length = stored.readUInt32LE(1);
  const payload = stored.subarray(HEADER);
  if (length > MAX_CHUNK_BYTES) throw new ChunkUnreadable(`it claims ${length} bytes`);
  const codec = stored.readUInt8(0);
  if (codec !== RAW && codec !== ZSTD) throw new ChunkUnreadable(`an unknown form ${codec}`);
  if (codec === ZSTD && frameContentSize(payload) !== length)
    throw new ChunkUnreadable('its frame says another length');
  const clear = codec === RAW ? payload : await decompress(payload, length);
  if (clear.length !== length) throw new ChunkUnreadable(`${clear.length} bytes, not ${length}`);
  return clear;
}

/** As the frame's header says (RFC 8878, 3.1.1.1), before anything is allocated for it. */
function frameContentSize(frame: Buffer): number | undefined {
  if (frame.length < 18 || frame.readUInt32LE(0) !== 0xfd2fb528) return undefined;
  const descriptor = frame.readUInt8(4);
  const single = (descriptor & 0x20) !== 0;
  const dictionary = [0, 1, 2, 4][descriptor & 3] as number;
  const at = 5 + (single ? 0 : 1) + dictionary;
  switch (descriptor >> 6) {
    case 0:
      return single ? frame.readUInt8(at) : undefined;
    case 1:
      return frame.readUInt16LE(at) + 256;
    case 2:
      return frame.readUInt32LE(at);
    default:
      return Number(frame.readBigUInt64LE(at));
  }
}

type Zstd = (
  bytes: Uint8Array,
  options: object,
  done: (error: Error | null, result: Buffer) => void,
) => void;
/** Node's own, from 22.15 on; elsewhere the same library as WebAssembly, on threads of its own. */
const native = zlib as unknown as { zstdCompress?: Zstd; zstdDecompress?: Zstd };

const compress = (clear: Uint8Array): Promise<Buffer> =>
  native.zstdCompress
    ? called(native.zstdCompress, clear, { params: { 100: 1 } })
    : threads().run('compress', clear);

const decompress = async (packed: Uint8Array, length: number): Promise<Buffer> => {
  try {
    return native.zstdDecompress
      ? await called(native.zstdDecompress, packed, { maxOutputLength: length })
      : await threads().run('decompress', packed);
  } catch (error) {
    throw new ChunkUnreadable(error instanceof Error ? error.message : String(error));
  }
};

const called = (work: Zstd, bytes: Uint8Array, options: object): Promise<Buffer> =>
  new Promise((resolve, reject) => {
    work(bytes, options, (error, result) => (error ? reject(error) : resolve(result)));
  });

const program = `
const { parentPort, workerData } = require('node:worker_threads');
const { init, compress, decompress } = require(workerData);
const LEVEL = 1;
init().then(() => parentPort.on('message', ({ id, job, bytes }) => {
  try {
    const result = job === 'compress' ? compress(bytes, LEVEL) : decompress(bytes);
    const own = result.byteLength === result.buffer.byteLength ? result : result.slice();
    parentPort.postMessage({ id, result: own }, [own.buffer]);
  } catch (error) {
    parentPort.postMessage({ id, error: String(error) });
  }
}));
`;

interface Waiting {
  resolve(result: Buffer): void;
  reject(error: Error): void;
}

class Threads {
  private readonly workers: { readonly worker: Worker; readonly waiting: Map<number, Waiting> }[] =
    [];
  private nextId = 1;

  constructor(count: number) {
    for (let i = 0; i < count; i++) this.workers.push(this.start());
  }

  run(job: 'compress' | 'decompress', bytes: Uint8Array): Promise<Buffer> {
    const least = this.workers.reduce((a, b) => (b.waiting.size < a.waiting.size ? b : a));
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      least.waiting.set(id, { resolve, reject });
      least.worker.ref();
      const copy = Uint8Array.prototype.slice.call(bytes);
      least.worker.postMessage({ id, job, bytes: copy }, [copy.buffer]);
    });
  }

  private start() {
    const worker = new Worker(program, {
      eval: true,
      workerData: require.resolve('@bokuweb/zstd-wasm'),
    });
    const waiting = new Map<number, Waiting>();
    const slot = { worker, waiting };
    worker.on('message', ({ id, result, error }: Answer) => {
      const one = waiting.get(id);
      waiting.delete(id);
      // An idle thread does not keep the process alive.
      if (waiting.size === 0) worker.unref();
      if (result) one?.resolve(Buffer.from(result.buffer, result.byteOffset, result.byteLength));
      else one?.reject(new Error(error ?? 'no result'));
    });
    worker.on('error', (error) => {
      for (const one of waiting.values()) one.reject(error);
      waiting.clear();
      this.workers.splice(this.workers.indexOf(slot), 1, this.start());
    });
    worker.unref();
    return slot;
  }
}

interface Answer {
  readonly id: number;
  readonly result?: Uint8Array;
  readonly error?: string;
}

let shared: Threads | undefined;
function threads(): Threads {
  shared ??= new Threads(Math.max(1, Math.min(4, availableParallelism())));
  return shared;
}
