import type { SupervisorClient } from '../src/index';
import { BodyWriter, FRAME } from '../src/wire';
import { FakeSupervisor } from './fake-supervisor';

const KNOWS_CHECKPOINTS = 8;

export interface Said {
  readonly type?: string;
  readonly path: string;
  readonly size?: number | 'absurd';
  readonly target?: string;
  readonly attribute?: string;
  readonly mode?: number;
  readonly modifiedAtNs?: bigint;
  readonly changedAtNs?: bigint;
  readonly inode?: number;
}

export const raw = (...parts: (Buffer | number)[]): Buffer =>
  Buffer.concat(parts.map((part) => (typeof part === 'number' ? Buffer.of(part) : part)));
const u64 = (value: number | bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const counted = (text: string | Buffer): Buffer =>
  raw(u32(Buffer.from(text).length), Buffer.from(text));

function entry(said: Said): Buffer {
  const { type = 'f', path, size = 0, target = '', attribute, mode = 0o644 } = said;
  const { modifiedAtNs = 1n, changedAtNs = 1n, inode = path.length } = said;
  const length = size === 'absurd' ? u64(2n ** 62n) : u64(size);
  const attributes = attribute
    ? raw(Buffer.of(1, 0), counted(attribute), counted('v'))
    : Buffer.alloc(2);
  const numbers = raw(u32(mode), u32(0), u32(0), u32(1), length);
  const times = raw(u64(modifiedAtNs), u64(changedAtNs));
  const identity = raw(u64(1), u64(inode));
  return raw(
    type.charCodeAt(0),
    0,
    numbers,
    times,
    identity,
    counted(path),
    counted(target),
    attributes,
  );
}

/** When every scan says that it was made. */
export const SCANNED_AT_NS = 10n ** 18n;
export const entriesOf = (entries: readonly Said[], count = entries.length): Buffer =>
  raw(...entries.map(entry), 0x7a, u64(count));
export const scanOf = (entries: readonly Said[], count = entries.length): Buffer =>
  raw(u64(SCANNED_AT_NS), u64(0), 0, entriesOf(entries, count));

export const status = (kind: 'F' | 'E', size: number, changedAt: number | bigint = 1): Buffer =>
  raw(kind.charCodeAt(0), u64(size), u64(1), u64(changedAt), u64(1));
export const block = (offset: number, bytes: Buffer): Buffer =>
  raw(0x44, u64(offset), counted(bytes));

/** Plays a sandbox that answers every scan with the same lies, and readings in turn, the last one for ever. */
export async function lyingSandbox(
  scan: Buffer,
  ...files: readonly Buffer[]
): Promise<SupervisorClient> {
  const { client, peer } = await FakeSupervisor.greeted(KNOWS_CHECKPOINTS);
  const answer = (id: number, bytes: Buffer) => {
    for (let at = 0; at < bytes.length; at += 65_536)
      peer.say(new BodyWriter().bytes(bytes.subarray(at, at + 65_536)).frame(FRAME.data, id));
    peer.say(new BodyWriter().u64(bytes.length).frame(FRAME.ok, id));
  };
  // Frames are heard in turn; what is not asked for is never answered.
  void (async () => {
    for (let read = 0; ; ) {
      const frame = await peer.hearAny();
      if (frame.type === FRAME.scan) answer(frame.id, scan);
      if (frame.type === FRAME.readMany)
        answer(frame.id, files[Math.min(read++, files.length - 1)] ?? Buffer.alloc(0));
      if (frame.type === FRAME.freeze) peer.say(new BodyWriter().u64(0).frame(FRAME.ok, frame.id));
      if (frame.type === FRAME.close) peer.say(new BodyWriter().frame(FRAME.closed, frame.id));
    }
  })();
  return client;
}
