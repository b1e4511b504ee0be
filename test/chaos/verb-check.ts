import type { SessionEventType } from '@vmux/events';
import type { History } from './laws';
import type { VerbName } from './stage';
import type { TimeScript, Verb } from './time-workload';

/** What each records when it is taken; some are done already, and record nothing. */
const RECORDED: Readonly<Record<VerbName, SessionEventType | null>> = {
  checkpoint: 'CheckpointRequested',
  rollback: 'RollbackRequested',
  fork: 'ForkRequested',
  suspend: 'SuspendRequested',
  resume: null,
  release: null,
  rehydrate: 'RehydrateRequested',
  move: 'MoveRequested',
};

/** What may be said no to, and why: something is under way, or it is not there at the moment. */
const REFUSALS = [
  'operation_underway',
  'not_running',
  'session_live',
  'nothing_to_do',
  'no_placement',
  'checkpoint_not_found',
  'too_many',
];

/**
 * A fork goes where its parent is, and a checkpoint of another provider does not fit there. One whose sandbox
 * could not be made three times, by an engine that is not there, has failed with that reason.
 */
const MAY_FAIL = /over another base|the Docker engine failed|the container is/;

type Add = (law: string, what: string) => void;

/** What was acknowledged stands in the history, once, whatever was repeated. */
export function checkVerbs(
  { verbs, deleted, failed }: TimeScript,
  histories: ReadonlyMap<string, History>,
  add: Add,
): void {
  for (const [session, why] of failed)
    if (!MAY_FAIL.test(why)) add('a verb is done or not done', `the fork ${session} is ${why}`);
  for (const verb of verbs) {
    const { name, session, answers } = verb;
    if (deleted.has(session)) continue;
    for (const { status, json } of answers)
      if (status >= 300 && !REFUSALS.includes(json?.code))
        add(
          '2 acknowledged means durable',
          `${session}: ${name} was answered ${status} ${JSON.stringify(json)}`,
        );
    const taken = answers.filter(({ status }) => status < 300);
    const [first] = taken;
    if (!first) continue;
    const names = new Set(taken.map(({ json }) => identity(json)));
    // What is done already is no news, and binds no key.
    if (names.size > 1 && name !== 'suspend' && name !== 'resume')
      add('3 once', `${session}: one key, several answers to ${name}: ${[...names].join(', ')}`);
    checkRecorded(verb, first.json, histories.get(session) ?? [], add);
  }
}

/** Of an answer: a repeat has the same. */
const identity = (json: { checkpointId?: string; forkId?: string; revision?: number }): string =>
  `${json.checkpointId} ${json.forkId} ${json.revision}`;

function checkRecorded(
  { name, session }: Verb,
  answer: { readonly checkpointId?: string; readonly forkId?: string; readonly revision?: number },
  history: History,
  add: Add,
): void {
  const type = RECORDED[name];
  if (type === null) return;
  const found = history.filter(({ event, revision }) => {
    if (event.type !== type) return false;
    if (event.type === 'CheckpointRequested')
      return event.data.checkpointId === answer.checkpointId;
    if (event.type === 'ForkRequested') return event.data.forkId === answer.forkId;
    return revision <= (answer.revision ?? -1);
  });
  const isMany = (type === 'CheckpointRequested' || type === 'ForkRequested') && found.length > 1;
  // Suspending what is suspended is done already.
  const isNone = found.length === 0 && name !== 'suspend';
  if (isNone)
    add('2 acknowledged means durable', `${session}: ${name} was acknowledged and is not recorded`);
  if (isMany) add('3 once', `${session}: ${name} is recorded ${found.length} times`);
}
