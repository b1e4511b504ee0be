import type { SeededRandom } from '@vmux/testing';
import { attach } from './attached';
import type { PatientClient } from './client';
import { generated, generatorLine } from './generator';
import type { TimeScript } from './time-workload';

/** What a client asked for and what it was told, for the checker. */
export interface Operation {
  readonly kind: 'mark' | 'logger' | 'terminal' | 'cancel' | 'reader' | 'typed' | 'attached';
  readonly session: string;
  readonly key: string;
  readonly mark: string;
  readonly seed: number;
  /** Null until it was acknowledged. */
  execId: string | null;
  /** Every answer to every repeat named this exec. */
  readonly answers: string[];
  readonly expected: Buffer | null;
  cancelled: boolean;
}

export interface Follower {
  readonly operation: Operation;
  bytes: Buffer;
  finished: boolean;
  drops: number;
  /** What the last read that did not finish was answered. */
  lastAnswer: string;
  /** What an attached terminal showed to its end. */
  shown: Buffer | null;
  /** Why it could not. */
  fault: string | null;
}

export interface Script {
  readonly operations: Operation[];
  readonly followers: Follower[];
  readonly sessions: string[];
  readonly time: TimeScript;
}

export interface WorkloadSettings {
  readonly client: PatientClient;
  readonly random: SeededRandom;
  readonly sessions: number;
  /** Where they are, in turn. */
  readonly providers: readonly string[];
  /** True while new work may begin. */
  readonly isOpen: () => boolean;
}

/** Many sessions at once; every operation is repeated with its key until it is answered. */
export async function perform(settings: WorkloadSettings, script: Script): Promise<void> {
  const actors = Array.from({ length: settings.sessions }, (_, index) =>
    playSession(settings, script, index),
  );
  await Promise.all(actors);
}

async function playSession(
  settings: WorkloadSettings,
  script: Script,
  index: number,
): Promise<void> {
  const { client, random, providers } = settings;
  const provider = providers[index % providers.length];
  const session = await client.create({ name: `chaos-${index}`, provider });
  script.sessions.push(session);
  const loggers: Promise<void>[] = [];
  while (settings.isOpen()) {
    const kind = random.pick(KINDS);
    if (kind !== 'mark' && loggers.length > 12) continue;
    const operation = newOperation(kind, session, random);
    script.operations.push(operation);
    const done = play(settings, script, operation);
    if (kind === 'mark' || kind === 'cancel') await done;
    else loggers.push(done);
    await new Promise((next) => setTimeout(next, random.integer(200)));
  }
  await Promise.all(loggers);
}

const KINDS: readonly Operation['kind'][] = [
  ...(['mark', 'mark', 'mark', 'logger', 'cancel', 'terminal'] as const),
  ...(['reader', 'typed', 'attached'] as const),
];
const slices = 20;
const sliceBytes = 20_000;

function newOperation(kind: Operation['kind'], session: string, random: SeededRandom): Operation {
  const seed = random.integer(2 ** 31);
  return {
    kind,
    session,
    key: random.uuid(),
    mark: `m${seed.toString(36)}-${random.integer(1e9).toString(36)}`,
    execId: null,
    answers: [],
    expected: expectedOf(kind, seed),
    cancelled: false,
    seed,
  };
}

const inputBytes = 40_000;
const readyText = 'ready';

/** What it will have written, if it comes to its end. */
function expectedOf(kind: Operation['kind'], seed: number): Buffer | null {
  switch (kind) {
    case 'logger':
      return generated(seed, slices, sliceBytes);
    case 'terminal':
      return Buffer.from(terminalText);
    case 'reader':
      return inputOf(seed);
    case 'typed':
    case 'attached':
      return Buffer.concat([Buffer.from(readyText), inputOf(seed)]);
    default:
      return null;
  }
}

const inputOf = (seed: number): Buffer<ArrayBuffer> => Buffer.from(generated(seed, 1, inputBytes));

/** On terminals output has one stream. */
export const streamOf = ({ kind }: Pick<Operation, 'kind'>): 'pty' | 'stdout' =>
  kind === 'terminal' || kind === 'typed' || kind === 'attached' ? 'pty' : 'stdout';

const terminalText = Array.from(
  { length: 2_000 },
  (_, line) => `line ${line} of a terminal\r\n`,
).join('');

function bodyOf(operation: Operation): object {
  const record = `echo ${operation.mark} >> /workspace/marks`;
  switch (operation.kind) {
    case 'mark':
      return { command: `${record}; echo ${operation.mark}` };
    case 'logger':
      return {
        command: `${record}; ${generatorLine(operation.seed, slices, sliceBytes, 0.1)}`,
      };
    case 'terminal':
      return {
        command: `${record}; i=0; while [ $i -lt 2000 ]; do echo "line $i of a terminal"; i=$((i+1)); done`,
        pty: { cols: 80, rows: 24 },
      };
    case 'reader':
      return { command: `${record}; exec cat`, stdin: true };
    case 'typed':
    case 'attached':
      return {
        command: `${record}; stty raw -echo; printf ${readyText}; exec head -c ${inputBytes}`,
        pty: { cols: 80, rows: 24 },
      };
    case 'cancel':
      return { command: `${record}; sleep 1000` };
  }
}

async function play(
  settings: WorkloadSettings,
  script: Script,
  operation: Operation,
): Promise<void> {
  const { client, random } = settings;
  const path = `/v1/sessions/${operation.session}/execs`;
  const issue = async () => {
    const answer = await client.call('POST', path, bodyOf(operation), operation.key);
    if (answer.status >= 300)
      throw new Error(`exec: ${answer.status} ${JSON.stringify(answer.json)}`);
    operation.answers.push(answer.json.id);
    operation.execId = answer.json.id;
  };
  await issue();
  // A client that did not hear the answer asks again; one in three here.
  if (random.integer(3) === 0) await issue();
  if (operation.kind === 'cancel') {
    await new Promise((next) => setTimeout(next, random.integer(500)));
    const answer = await client.call(
      'POST',
      `${path}/${operation.execId}/cancel`,
      { graceMs: 500 },
      random.uuid(),
    );
    operation.cancelled = answer.status < 300;
    return;
  }
  if (operation.kind === 'mark') return;
  const follower: Follower = {
    operation,
    bytes: Buffer.alloc(0),
    finished: false,
    drops: 0,
    lastAnswer: '',
    shown: null,
    fault: null,
  };
  script.followers.push(follower);
  const following = follow(client, random, follower);
  if (operation.kind === 'reader' || operation.kind === 'typed') await feed(client, follower);
  if (operation.kind === 'attached') {
    await shown(client, follower, readyText.length);
    await attach(client, random, follower, inputOf(operation.seed));
  }
  await following;
}

/** Until so much can be read of it, or it has ended. */
async function shown(client: PatientClient, { operation }: Follower, size: number) {
  const { session, execId } = operation;
  const path = `/v1/sessions/${session}/logs?exec=${execId}&stream=${streamOf(operation)}&follow=true`;
  for (;;) {
    const { bytes, complete, status } = await client.read(path, size);
    if (complete || (status === 200 && bytes.length >= size)) return;
    await new Promise((next) => setTimeout(next, 50));
  }
}

const pieceBytes = 5_000;
let writers = 0;

/** Gives an exec its input, piece by piece; a piece whose answer was lost is sent again as it was. */
async function feed(client: PatientClient, follower: Follower): Promise<void> {
  const { session, execId, kind, seed } = follower.operation;
  const input = inputOf(seed);
  const writer = Date.now() * 1000 + (writers++ % 1000);
  const path = `/v1/sessions/${session}/execs/${execId}/stdin?writer=${writer}`;
  if (kind === 'typed') await shown(client, follower, readyText.length);
  for (let offset = 0; offset < input.length && !follower.finished; ) {
    const piece = input.subarray(offset, offset + pieceBytes);
    const answer = await client.write(`${path}&offset=${offset}`, piece, () => follower.finished);
    // It has ended, or the sandbox is gone: its outcome says so.
    if (answer?.status !== 200) return;
    offset += piece.length;
  }
  if (kind === 'reader' && !follower.finished)
    await client.write(
      `${path}&offset=${input.length}&eof=true`,
      Buffer.alloc(0),
      () => follower.finished,
    );
}

/** Reads to the end of the exec, dropping the connection at random and going on at the offset it has. */
async function follow(
  client: PatientClient,
  random: SeededRandom,
  follower: Follower,
): Promise<void> {
  const { session, execId } = follower.operation;
  const stream = streamOf(follower.operation);
  while (!follower.finished) {
    const drop = random.integer(3) === 0 ? 1 + random.integer(200_000) : undefined;
    const path = `/v1/sessions/${session}/logs?exec=${execId}&stream=${stream}&follow=true&offset=${follower.bytes.length}`;
    const { bytes, complete, status } = await client.read(path, drop);
    follower.lastAnswer = status === 200 ? '200' : `${status} ${bytes.toString().slice(0, 200)}`;
    if (status === 200) follower.bytes = Buffer.concat([follower.bytes, bytes]);
    follower.finished = complete;
    if (!complete) {
      follower.drops += 1;
      await new Promise((next) => setTimeout(next, 50));
    }
  }
}
