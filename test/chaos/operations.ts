import { createHash } from 'node:crypto';
import { type SeededRandom, seededRandom } from '@vmux/testing';
import { generated, generatorLine } from './generator';

const LONG_KINDS = ['logger', 'terminal', 'reader', 'typed', 'attached'] as const;
export type Kind = 'mark' | 'cancel' | (typeof LONG_KINDS)[number];

/** As often as each is named. */
export const KINDS: readonly Kind[] = ['mark', 'mark', 'mark', 'cancel', ...LONG_KINDS];

/** What a client asked for and what it was told, for the checker. */
export interface Operation {
  readonly kind: Kind;
  readonly session: string;
  /** Of that session. */
  readonly secret: string;
  readonly key: string;
  readonly mark: string;
  readonly seed: number;
  /** What it ends with, where nothing ends it before. */
  readonly code: number;
  /** How many bytes it will have written, if it comes to its end. */
  readonly size: number;
  /** Null until it was acknowledged. */
  execId: string | null;
  /** Every answer to every repeat named this exec. */
  readonly answers: string[];
  /** What was no answer to them. */
  readonly refusals: string[];
  /** What its cancel was answered; null where none was asked for. */
  cancelled: number | null;
}

const SLICES = 20;
/** Every other is so large that its supervisor frees parts of it while it runs: it does so by mebibytes. */
const sliceBytesOf = (seed: number): number => (seed % 2 === 0 ? 150_000 : 20_000);
const INPUT_BYTES = 40_000;
export const READY = 'ready';
const TERMINAL_TEXT = Array.from(
  { length: 2_000 },
  (_, line) => `line ${line} of a terminal\r\n`,
).join('');
const CODES = [0, 0, 0, 1, 7, 137, 255];
const WRONG_SECRET = 99;

/** A session's value of this name, which its history never holds in clear. */
export const SECRET = 'CHAOS_SECRET';

export function newOperation(
  kind: Kind,
  session: string,
  secret: string,
  random: SeededRandom,
): Operation {
  const seed = random.integer(2 ** 31);
  return {
    kind,
    session,
    secret,
    key: random.uuid(),
    mark: `m${seed.toString(36)}-${random.integer(1e9).toString(36)}`,
    seed,
    code: random.pick(CODES),
    size: sizeOf(kind, seed),
    execId: null,
    answers: [],
    refusals: [],
    cancelled: null,
  };
}

/** Of its own, so that what others do in the meantime changes nothing of it. */
export const randomOf = ({ seed }: Operation): SeededRandom => seededRandom(seed);

function sizeOf(kind: Kind, seed: number): number {
  if (kind === 'logger') return SLICES * sliceBytesOf(seed);
  if (kind === 'terminal') return TERMINAL_TEXT.length;
  return kind === 'mark' || kind === 'cancel' ? 0 : INPUT_BYTES + READY.length;
}

/** What it will have written, if it comes to its end. */
export function expectedOf({ kind, seed, mark }: Operation): Buffer {
  switch (kind) {
    case 'mark':
      return Buffer.from(`${mark}\n`);
    case 'cancel':
      return Buffer.alloc(0);
    case 'logger':
      return generated(seed, SLICES, sliceBytesOf(seed));
    case 'terminal':
      return Buffer.from(TERMINAL_TEXT);
    case 'reader':
      return inputOf(seed);
    case 'typed':
    case 'attached':
      return Buffer.concat([Buffer.from(READY), inputOf(seed)]);
  }
}

export const inputOf = (seed: number): Buffer<ArrayBuffer> =>
  Buffer.from(generated(seed, 1, INPUT_BYTES));

/** On terminals output has one stream. */
export const streamOf = ({ kind }: Pick<Operation, 'kind'>): 'pty' | 'stdout' =>
  kind === 'terminal' || kind === 'typed' || kind === 'attached' ? 'pty' : 'stdout';

export function bodyOf({ kind, mark, seed, code, secret }: Operation): object {
  const record = `echo ${mark} >> /workspace/marks`;
  const known = createHash('sha256').update(secret).digest('hex');
  const isKnown = `[ "$(printf %s "$${SECRET}" | sha256sum)" = "${known}  -" ] || exit ${WRONG_SECRET}`;
  const command = (work: string) => ({ command: `${record}; ${work}; exit ${code}` });
  const pty = { cols: 80, rows: 24 };
  switch (kind) {
    case 'mark':
      return command(`${isKnown}; echo ${mark}`);
    case 'logger':
      return command(generatorLine(seed, SLICES, sliceBytesOf(seed), 0.1));
    case 'terminal':
      return {
        ...command('i=0; while [ $i -lt 2000 ]; do echo "line $i of a terminal"; i=$((i+1)); done'),
        pty,
      };
    case 'reader':
      return { ...command('cat'), stdin: true };
    case 'typed':
    case 'attached':
      return { ...command(`stty raw -echo; printf ${READY}; head -c ${INPUT_BYTES}`), pty };
    case 'cancel':
      return command('sleep 1000');
  }
}
