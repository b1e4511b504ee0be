import type { Stream } from '@vmux/events';
import type { ExecView } from './exec-view';
import { wholeOf } from './log-cursor';
import type { LogPlace } from './log-index';
import type { LogReader } from './log-reader';

export interface CollectedStream {
  /** UTF-8 text, or base64 when the bytes are no UTF-8. */
  readonly text: string;
  readonly encoding: 'utf8' | 'base64';
  /** Of the first byte and after the last one. */
  readonly offset: number;
  readonly next: number;
  /** How much there is, as far as is known. */
  readonly size: number | null;
  /** There is more, from `next` on. */
  readonly truncated: boolean;
  /** The bytes from here on no longer exist; what follows starts after it. */
  readonly gap: { readonly from: number; readonly to: number; readonly reason: string } | null;
}

const STREAMS: readonly Stream[] = ['stdout', 'stderr', 'pty'];

/** The beginning of what an exec wrote, by stream, up to so many bytes of each. */
export async function collectOutput(
  reader: LogReader,
  sessionId: string,
  exec: ExecView,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Partial<Record<Stream, CollectedStream>>> {
  const collected: Partial<Record<Stream, CollectedStream>> = {};
  const recent = await reader.recent(sessionId, exec, signal);
  for (const stream of STREAMS.filter((each) => (each === 'pty') === exec.pty)) {
    collected[stream] = await collect(reader, recent, sessionId, exec, stream, maxBytes, signal);
  }
  return collected;
}

async function collect(
  reader: LogReader,
  recent: readonly LogPlace[] | null,
  sessionId: string,
  exec: ExecView,
  stream: Stream,
  maxBytes: number,
  signal: AbortSignal,
): Promise<CollectedStream> {
  const size = exec.sizes?.[stream] ?? null;
  const pieces: Uint8Array[] = [];
  let gap: CollectedStream['gap'] = null;
  let kept = 0;
  let more = false;
  if (size !== 0) {
    const target = { kind: 'stream', exec, stream } as const;
    const request = { sessionId, target, offset: 0, follow: false, signal } as const;
    const items = (recent && wholeOf(target, recent)) ?? (await reader.open(request));
    for await (const item of items) {
      if (item.kind === 'gap') gap = { from: item.from, to: item.to, reason: item.reason };
      if (item.kind === 'gap') break;
      if (item.kind !== 'bytes') continue;
      more = kept + item.bytes.length > maxBytes;
      const piece = item.bytes.subarray(0, maxBytes - kept);
      pieces.push(piece);
      kept += piece.length;
      if (more || kept === size) break;
    }
  }
  const truncated = more || (size !== null && kept < size);
  const { length, ...text } = textOf(Buffer.concat(pieces), truncated);
  return { ...text, offset: 0, next: length, size, truncated, gap };
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const LONGEST_CHARACTER = 4;

/** A character that the limit cuts through is left for the next read. */
function textOf(bytes: Buffer, cut: boolean) {
  const length = cut ? bytes.length - unfinishedOf(bytes) : bytes.length;
  const text = decoded(bytes.subarray(0, length));
  if (text !== null) return { text, encoding: 'utf8' as const, length };
  return { text: bytes.toString('base64'), encoding: 'base64' as const, length: bytes.length };
}

/** How many bytes at the end begin a character that goes on after them. */
function unfinishedOf(bytes: Buffer): number {
  for (let back = 1; back < LONGEST_CHARACTER && back <= bytes.length; back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte >= 0xc2 && byte <= 0xf4) return back < lengthOf(byte) ? back : 0;
    if (byte < 0x80 || byte > 0xbf) return 0;
  }
  return 0;
}

const lengthOf = (lead: number): number => (lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2);

function decoded(bytes: Buffer): string | null {
  try {
    return UTF8.decode(bytes);
  } catch {
    return null;
  }
}
