import type { SeededRandom } from '@vmux/testing';
import type { PatientClient } from './client';
import { generated, generatorLine } from './generator';

/** What a client asked for and what it was told, for the checker. */
export interface Operation {
  readonly kind: 'mark' | 'logger' | 'terminal' | 'cancel';
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
}

export interface Script {
  readonly operations: Operation[];
  readonly followers: Follower[];
  readonly sessions: string[];
}

export interface WorkloadSettings {
  readonly client: PatientClient;
  readonly random: SeededRandom;
  readonly sessions: number;
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
  const { client, random } = settings;
  const created = await client.call(
    'POST',
    '/v1/sessions',
    { name: `chaos-${index}` },
    random.uuid(),
  );
  if (created.status !== 201)
    throw new Error(`create: ${created.status} ${JSON.stringify(created.json)}`);
  const session: string = created.json.id;
  script.sessions.push(session);
  const loggers: Promise<void>[] = [];
  while (settings.isOpen()) {
    const kind = random.pick(['mark', 'mark', 'mark', 'logger', 'cancel', 'terminal'] as const);
    if (kind === 'logger' && loggers.length > 8) continue;
    const operation = newOperation(kind, session, random);
    script.operations.push(operation);
    const done = play(settings, script, operation);
    if (kind === 'logger' || kind === 'terminal') loggers.push(done);
    else await done;
    await new Promise((next) => setTimeout(next, random.integer(200)));
  }
  await Promise.all(loggers);
}

const slices = 20;
const sliceBytes = 20_000;

function newOperation(kind: Operation['kind'], session: string, random: SeededRandom): Operation {
  const seed = random.integer(2 ** 31);
  const expected = kind === 'logger' ? generated(seed, slices, sliceBytes) : null;
  return {
    kind,
    session,
    key: random.uuid(),
    mark: `m${seed.toString(36)}-${random.integer(1e9).toString(36)}`,
    execId: null,
    answers: [],
    expected: kind === 'terminal' ? Buffer.from(terminalText) : expected,
    cancelled: false,
    seed,
  };
}

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
  };
  script.followers.push(follower);
  await follow(client, random, follower);
}

/** Reads to the end of the exec, dropping the connection at random and going on at the offset it has. */
async function follow(
  client: PatientClient,
  random: SeededRandom,
  follower: Follower,
): Promise<void> {
  const { session, execId, kind } = follower.operation;
  const stream = kind === 'terminal' ? 'pty' : 'stdout';
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
