import { VmuxError } from './errors';
import type { CommandExit } from './types';

/** What the gateway says on an attached terminal (docs/attach.md). */
export type TerminalFrame =
  | {
      readonly kind: 'hello';
      readonly mode: 'type' | 'watch';
      readonly writer: number;
      /** The number that this writer's input goes on with; null when it is not known. */
      readonly next: number | null;
      readonly size: { readonly cols: number; readonly rows: number } | null;
    }
  | { readonly kind: 'bytes'; readonly offset: number; readonly bytes: Buffer }
  | {
      readonly kind: 'screen';
      readonly offset: number;
      readonly cols: number;
      readonly rows: number;
      readonly bytes: Buffer;
    }
  | {
      readonly kind: 'resized';
      readonly offset: number;
      readonly cols: number;
      readonly rows: number;
    }
  | { readonly kind: 'taken'; readonly next: number }
  | { readonly kind: 'gap'; readonly from: number; readonly to: number; readonly reason: string }
  | { readonly kind: 'exit'; readonly exit: CommandExit; readonly next: number }
  | { readonly kind: 'error'; readonly fatal: boolean; readonly body: unknown };

const u64 = (frame: Buffer, at: number): number => Number(frame.readBigUInt64LE(at));
const json = (frame: Buffer) => JSON.parse(frame.toString('utf8', 1)) as Record<string, unknown>;

/** Null for a type that this client does not know. */
export function frameFrom(frame: Buffer): TerminalFrame | null {
  try {
    return parsed(frame);
  } catch (fault) {
    throw new VmuxError(
      'unexpected_answer',
      'the gateway sent a frame that this client cannot read',
      'use a client of the same version as the gateway',
      0,
      false,
      {},
      { cause: fault },
    );
  }
}

function parsed(frame: Buffer): TerminalFrame | null {
  const [type] = frame;
  if (type === 1) {
    const { mode, writer, next, cols, rows } = json(frame);
    const isTyping = mode === 'type' ? 'type' : 'watch';
    const isSized = typeof cols === 'number' && typeof rows === 'number';
    return {
      ...{ kind: 'hello', mode: isTyping, writer: Number(writer) },
      next: typeof next === 'number' ? next : null,
      size: isSized ? { cols, rows } : null,
    };
  }
  if (type === 2) return { kind: 'bytes', offset: u64(frame, 1), bytes: frame.subarray(9) };
  if (type === 3 || type === 4) {
    const size = { cols: frame.readUInt16LE(9), rows: frame.readUInt16LE(11) };
    const place = { offset: u64(frame, 1), ...size };
    return type === 3
      ? { kind: 'screen', ...place, bytes: frame.subarray(13) }
      : { kind: 'resized', ...place };
  }
  if (type === 5) return { kind: 'taken', next: u64(frame, 1) };
  if (type === 6) {
    const reason = frame.toString('utf8', 17);
    return { kind: 'gap', from: u64(frame, 1), to: u64(frame, 9), reason };
  }
  if (type === 7) {
    const { exit, next } = json(frame);
    return { kind: 'exit', exit: exit as CommandExit, next: Number(next) };
  }
  if (type === 8) {
    const body = json(frame);
    return { kind: 'error', fatal: body.fatal === true, body };
  }
  return null;
}

export function inputFrame(offset: number, bytes: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt8(17, 0);
  head.writeBigUInt64LE(BigInt(offset), 1);
  return Buffer.concat([head, bytes]);
}

export function resizeFrame(cols: number, rows: number): Buffer {
  const frame = Buffer.alloc(5);
  frame.writeUInt8(18, 0);
  frame.writeUInt16LE(cols, 1);
  frame.writeUInt16LE(rows, 3);
  return frame;
}

export const repaintFrame = (): Buffer => Buffer.from([19]);
