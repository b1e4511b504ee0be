import { seededRandom } from '@vmux/testing';
import { attach } from './attached';
import type { PatientClient } from './client';
import { type Follower, feed, follow, newFollower, shown } from './followers';
import { HistoryWatch } from './history-watch';
import {
  bodyOf,
  inputOf,
  KINDS,
  newOperation,
  type Operation,
  READY,
  randomOf,
  SECRET,
} from './operations';
import type { TimeScript } from './time-workload';

export interface Script {
  readonly operations: Operation[];
  readonly followers: Follower[];
  readonly sessions: string[];
  /** Values that no history may hold. */
  readonly secrets: string[];
  readonly watches: HistoryWatch[];
  readonly time: TimeScript;
}

export interface WorkloadSettings {
  readonly client: PatientClient;
  readonly seed: number;
  readonly sessions: number;
  /** Where they are, in turn. */
  readonly providers: readonly string[];
  /** How much of the time for new work is over; none may begin from 1 on. */
  readonly progress: () => number;
}

const PAUSE_MS = 200;
/** Of one session, so that its history becomes a long one. */
const HURRIED_MS = 20;
/** Of what writes for longer than a moment, in one session. */
const LONG_AT_ONCE = 3;
/** Of all sessions in the whole run, however long it is: the event store's disk is small. */
const BYTES = 300_000_000;
const BYTES_AT_ONCE = 60_000_000;

/** Many sessions at once; every operation is repeated with its key until it is answered. */
export async function perform(settings: WorkloadSettings, script: Script): Promise<void> {
  const actors = Array.from({ length: settings.sessions }, (_, index) =>
    playSession(settings, script, index),
  );
  await Promise.all(actors);
}

async function playSession(
  { client, providers, seed, sessions, progress }: WorkloadSettings,
  script: Script,
  index: number,
): Promise<void> {
  const random = seededRandom(seed + index);
  const provider = providers[index % providers.length];
  const secret = random.uuid();
  const env = { [SECRET]: secret };
  const session = await client.create({ name: `chaos-${index}`, provider, env });
  script.sessions.push(session);
  script.secrets.push(secret);
  script.watches.push(new HistoryWatch(client, seededRandom(seed + 1000 + index), session));
  const under = new Set<Promise<void>>();
  let bytes = 0;
  while (progress() < 1) {
    const room = (BYTES_AT_ONCE + BYTES * progress()) / sessions - bytes;
    // Drawn before it is known whether there is room for it: what comes later stays the same.
    const wanted = random.pick(KINDS);
    const isShort = wanted === 'mark' || wanted === 'cancel';
    const kind = isShort || (under.size < LONG_AT_ONCE && room > 0) ? wanted : 'mark';
    const operation = newOperation(kind, session, secret, random);
    script.operations.push(operation);
    bytes += operation.size;
    const done = play(client, script, operation);
    if (operation.size > 0) {
      under.add(done);
      // One that failed stays, for whoever waits for all of them.
      done.then(
        () => under.delete(done),
        () => undefined,
      );
    } else await done;
    await new Promise((next) =>
      setTimeout(next, random.integer(index === 0 ? HURRIED_MS : PAUSE_MS)),
    );
  }
  await Promise.all(under);
}

async function play(client: PatientClient, script: Script, operation: Operation): Promise<void> {
  const random = randomOf(operation);
  const path = `/v1/sessions/${operation.session}/execs`;
  const issue = async () => {
    const answer = await client.call('POST', path, bodyOf(operation), operation.key);
    const { status, json } = answer;
    if (status >= 300) operation.refusals.push(`${status} ${JSON.stringify(json)}`);
    else operation.answers.push(json.id);
    operation.execId ??= operation.answers[0] ?? null;
  };
  // A client that did not hear the answer asks again, or has asked already; two in three here.
  const repeats = random.pick(['none', 'after', 'beside'] as const);
  await Promise.all(repeats === 'beside' ? [issue(), issue()] : [issue()]);
  if (repeats === 'after') await issue();
  if (operation.kind === 'mark' || operation.execId === null) return;
  if (operation.kind === 'cancel') {
    await new Promise((next) => setTimeout(next, random.integer(500)));
    const cancel = `${path}/${operation.execId}/cancel?grace=500ms`;
    const answer = await client.call('POST', cancel, {}, random.uuid());
    operation.cancelled = answer.status;
    return;
  }
  const follower = newFollower(operation, random.pick(['offset', 'event id'] as const));
  script.followers.push(follower);
  const following = follow(client, random, follower);
  if (operation.kind === 'reader' || operation.kind === 'typed') await feed(client, follower);
  if (operation.kind === 'attached') {
    await shown(client, follower, READY.length);
    await attach(client, random, follower, inputOf(operation.seed));
  }
  await following;
}
