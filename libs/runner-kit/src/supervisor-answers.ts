import { ProtocolViolation, SupervisorRefused, supervisorErrorReason } from './errors';
import { BodyReader, type Frame, MAGIC, MAX_DATA } from './wire';

/** What a supervisor says, read from hostile bytes into plain data. */

export type ExecOutcome =
  | { readonly kind: 'starting' }
  | { readonly kind: 'running' }
  | { readonly kind: 'exited'; readonly code: number }
  /** `signal` is its number. */
  | { readonly kind: 'signalled'; readonly signal: number; readonly coreDumped: boolean }
  /** It never ran. */
  | {
      readonly kind: 'failed';
      readonly errno: number;
      readonly stage: 'user' | 'cwd' | 'exec' | 'setup';
    }
  /** It never ran and never will. */
  | { readonly kind: 'cancelled' }
  /** It was running when an earlier supervisor ended: nobody knows what it came to. */
  | { readonly kind: 'lost' };

export interface ExecState {
  readonly execId: string;
  readonly outcome: ExecOutcome;
  readonly pty: boolean;
  readonly stdinOpen: boolean;
  readonly released: boolean;
  /** The files hold less than the journal says. */
  readonly outputIncomplete: boolean;
  readonly pid: number;
  readonly startedAtUs: number;
  readonly endedAtUs: number;
  /** Bytes so far; final once it has ended. A terminal's output is counted as stdout. */
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** Of the merged output: below it nothing can be read any more. */
  readonly ackedOffset: number;
  /** Written by background processes after the exec had ended, and discarded. */
  readonly lateBytes: number;
}

export const hasEnded = (exec: ExecState): boolean =>
  exec.outcome.kind !== 'starting' && exec.outcome.kind !== 'running';

export type OutputItem =
  | {
      readonly kind: 'stdout' | 'stderr';
      /** In the merged output; undefined when one stream alone is read. */
      readonly mergedOffset: number | undefined;
      readonly streamOffset: number;
      readonly atUs: number;
      readonly data: Buffer;
    }
  | {
      readonly kind: 'resize';
      readonly mergedOffset: number | undefined;
      readonly cols: number;
      readonly rows: number;
      readonly atUs: number;
    };

export interface PortNotice {
  readonly port: number;
  readonly open: boolean;
  readonly ipv4: boolean;
  readonly ipv6: boolean;
  readonly loopbackOnly: boolean;
}

export interface Hello {
  readonly version: number;
  readonly pid1: boolean;
  readonly readOnly: boolean;
  readonly stopping: boolean;
  /** It knows FREEZE, THAW, SCAN, READ_MANY and UNPACK. */
  readonly checkpoints: boolean;
  /** It knows USAGE. */
  readonly usage: boolean;
  /** A READ can ask it for the usage too. */
  readonly readsUsage: boolean;
  readonly epoch: number;
  readonly instance: string;
  readonly startedAtUs: number;
  readonly maxFrame: number;
  readonly software: string;
}

export type FileType = 'file' | 'directory' | 'link' | 'character' | 'block' | 'fifo' | 'socket';
export interface FileEntry {
  readonly type: FileType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly modifiedAtUs: number;
  /** As bytes: a file name need not be text. */
  readonly name: Buffer;
  readonly linkTarget: Buffer;
}

const figureNames = {
  1: 'cpuUs',
  2: 'memoryBytes',
  3: 'memoryLimitBytes',
  4: 'memoryPeakBytes',
  5: 'oomKills',
  6: 'pids',
  7: 'pidsLimit',
  8: 'diskUsedBytes',
  9: 'diskTotalBytes',
  10: 'spoolFreeBytes',
  11: 'uptimeUs',
  12: 'runningExecs',
  13: 'supervisorRssBytes',
  14: 'readBytes',
  15: 'writtenBytes',
  16: 'memoryCacheBytes',
} as const;
export type FigureName = (typeof figureNames)[keyof typeof figureNames];
/** A figure that cannot be had is missing. */
export type Figures = Readonly<Partial<Record<FigureName, number>>>;

export function readHello(frame: Frame): Hello {
  const body = new BodyReader(frame, 'HELLO');
  if (body.u32() !== MAGIC) throw new ProtocolViolation('HELLO: not a supervisor');
  const version = body.u16();
  const flags = body.u16();
  const hello = {
    version,
    pid1: (flags & 1) !== 0,
    readOnly: (flags & 2) !== 0,
    stopping: (flags & 4) !== 0,
    checkpoints: (flags & 8) !== 0,
    usage: (flags & 16) !== 0,
    readsUsage: (flags & 32) !== 0,
    epoch: body.u64(),
    startedAtUs: body.u64(),
    maxFrame: body.u32(),
    instance: plainName(body.text(64), 'HELLO'),
    software: body.text(64),
  };
  body.end();
  return hello;
}

export function readError(frame: Frame): SupervisorRefused {
  const body = new BodyReader(frame, 'ERROR');
  const number = body.u16();
  body.u16();
  const errno = body.u32();
  const detail = body.u64Clamped();
  const message = body.text(4096);
  body.end();
  const reason = supervisorErrorReason(number);
  if (!reason) throw new ProtocolViolation(`ERROR: an unknown code ${number}`);
  return new SupervisorRefused(reason, printable(message), errno, detail);
}

export function readOk(frame: Frame): number {
  const body = new BodyReader(frame, 'OK');
  const value = body.u64();
  body.end();
  return value;
}

export function readCredit(frame: Frame): number {
  const body = new BodyReader(frame, 'CREDIT');
  const value = body.u32();
  body.end();
  return value;
}

export function readData(frame: Frame): Buffer {
  const body = new BodyReader(frame, 'DATA');
  const data = body.bytes(MAX_DATA);
  body.end();
  return data;
}

export function readEmpty(frame: Frame, name: string): void {
  new BodyReader(frame, name).end();
}

const stages = ['setup', 'user', 'cwd', 'exec', 'setup'] as const;

export function readExec(frame: Frame, expectedId?: string): ExecState {
  const body = new BodyReader(frame, 'EXEC');
  const state = body.u8();
  const flags = body.u8();
  const stage = body.u8();
  body.u8();
  const code = body.i32();
  body.u32();
  const exec = {
    outcome: outcomeOf(state, code, stage, (flags & 8) !== 0),
    pty: (flags & 1) !== 0,
    stdinOpen: (flags & 2) !== 0,
    released: (flags & 4) !== 0,
    outputIncomplete: (flags & 16) !== 0,
    pid: body.u32(),
    startedAtUs: body.u64(),
    endedAtUs: body.u64(),
    stdoutBytes: body.u64(),
    stderrBytes: body.u64(),
    ackedOffset: body.u64(),
    lateBytes: body.u64(),
    execId: plainName(body.text(64), 'EXEC'),
  };
  body.end();
  if (expectedId !== undefined && exec.execId !== expectedId)
    throw new ProtocolViolation('EXEC: an answer about another exec');
  return exec;
}

function outcomeOf(state: number, code: number, stage: number, coreDumped: boolean): ExecOutcome {
  switch (state) {
    case 1:
      return { kind: 'starting' };
    case 2:
      return { kind: 'running' };
    case 3:
      return { kind: 'exited', code: within(code, 0, 255, 'an exit code') };
    case 4:
      return { kind: 'signalled', signal: within(code, 1, 64, 'a signal'), coreDumped };
    case 5: {
      const known = stages[within(stage, 1, 4, 'a stage')] ?? 'setup';
      return { kind: 'failed', errno: within(code, 0, 4095, 'an errno'), stage: known };
    }
    case 6:
      return { kind: 'cancelled' };
    case 7:
      return { kind: 'lost' };
    default:
      throw new ProtocolViolation(`EXEC: an unknown state ${state}`);
  }
}

export function readOutput(frame: Frame): OutputItem {
  const body = new BodyReader(frame, 'OUTPUT');
  const kind = body.u8();
  const mergedOffset = body.u64OrNone();
  const streamOffset = body.u64();
  const atUs = body.u64();
  const data = body.bytes(MAX_DATA);
  body.end();
  if (kind === 3) {
    if (data.length > 0) throw new ProtocolViolation('OUTPUT: a resize with data');
    const rows = within(Math.floor(streamOffset / 65_536), 0, 65_535, 'a number of rows');
    return { kind: 'resize', mergedOffset, cols: streamOffset % 65_536, rows, atUs };
  }
  if (kind !== 1 && kind !== 2) throw new ProtocolViolation(`OUTPUT: an unknown kind ${kind}`);
  if (data.length === 0) throw new ProtocolViolation('OUTPUT: no bytes');
  return { kind: kind === 1 ? 'stdout' : 'stderr', mergedOffset, streamOffset, atUs, data };
}

export function readStdinAck(frame: Frame): { next: number; full: boolean; atEnd: boolean } {
  const body = new BodyReader(frame, 'STDIN_ACK');
  const next = body.u64();
  const flags = body.u8();
  body.end();
  return { next, full: (flags & 1) !== 0, atEnd: (flags & 2) !== 0 };
}

export function readPort(frame: Frame): PortNotice {
  const body = new BodyReader(frame, 'PORT');
  const port = within(body.u16(), 1, 65_535, 'a port');
  const open = body.u8() !== 0;
  const families = body.u8();
  const loopbackOnly = body.u8() !== 0;
  body.end();
  return { port, open, ipv4: (families & 1) !== 0, ipv6: (families & 2) !== 0, loopbackOnly };
}

export function readFigures(frame: Frame): Figures {
  const body = new BodyReader(frame, 'FIGURES');
  const figures: Partial<Record<FigureName, number>> = {};
  for (let left = within(body.u16(), 0, 256, 'a number of figures'); left > 0; left--) {
    const key = body.u16();
    const value = body.u64OrNone();
    // A figure that this version does not know is a newer supervisor's.
    if (value !== undefined && isFigure(key)) figures[figureNames[key]] = value;
  }
  body.end();
  return figures;
}
const isFigure = (key: number): key is keyof typeof figureNames => Object.hasOwn(figureNames, key);

const fileTypes: Readonly<Record<string, FileType>> = {
  f: 'file',
  d: 'directory',
  l: 'link',
  c: 'character',
  b: 'block',
  p: 'fifo',
  s: 'socket',
};

/** Reads one entry off the front, or says that there is not a whole one yet. */
export function readFileEntry(bytes: Buffer): { entry: FileEntry; size: number } | undefined {
  const fixed = 1 + 4 * 3 + 8 * 2;
  if (bytes.length < fixed + 4) return undefined;
  const nameLength = within(bytes.readUInt32LE(fixed), 1, 4096, 'a name length');
  if (bytes.length < fixed + 4 + nameLength + 4) return undefined;
  const linkLength = within(bytes.readUInt32LE(fixed + 4 + nameLength), 0, 4096, 'a link length');
  const size = fixed + 4 + nameLength + 4 + linkLength;
  if (bytes.length < size) return undefined;
  const body = new BodyReader({ type: 0, id: 0, body: bytes.subarray(0, size) }, 'file entry');
  const type = fileTypes[String.fromCharCode(body.u8())];
  if (!type) throw new ProtocolViolation('file entry: an unknown type');
  const entry: FileEntry = {
    type,
    mode: body.u32(),
    uid: body.u32(),
    gid: body.u32(),
    size: body.u64Clamped(),
    modifiedAtUs: body.u64Clamped(),
    name: Buffer.from(body.bytes(4096)),
    linkTarget: Buffer.from(body.bytes(4096)),
  };
  body.end();
  return { entry, size };
}

const NAME = /^[A-Za-z0-9._-]{1,64}$/;
export const isPlainName = (text: string): boolean => NAME.test(text);

function plainName(text: string, frame: string): string {
  if (!isPlainName(text)) throw new ProtocolViolation(`${frame}: not a name`);
  return text;
}

function within(value: number, least: number, most: number, what: string): number {
  if (value < least || value > most) throw new ProtocolViolation(`${what} of ${value}`);
  return value;
}

/** A sandbox's words end up in logs and terminals: control characters do not. */
function printable(text: string): string {
  return [...text.slice(0, 500)]
    .map((char) => (char < ' ' || char === '\u007f' ? ' ' : char))
    .join('');
}
