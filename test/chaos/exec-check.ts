import type { PatientClient } from './client';
import type { Follower } from './followers';
import type { History } from './laws';
import { expectedOf, type Operation, streamOf } from './operations';

interface ExecFacts {
  readonly epoch: number | null;
  readonly exit: { readonly kind: string; readonly code?: number; readonly reason?: string } | null;
}

/** What ran in a session's sandbox, as that sandbox tells it. */
interface Marks {
  readonly epoch: number | null;
  readonly counts: ReadonlyMap<string, number>;
}

export interface SessionWork {
  readonly session: string;
  readonly operations: readonly Operation[];
  readonly followers: readonly Follower[];
  readonly history: History;
  /** Somebody killed a sandbox of it. */
  readonly isStruck: boolean;
}

type Add = (law: string, what: string, operation?: Operation) => void;

const [DURABLE, ONCE, BYTES, OUTCOMES] = [
  '2 acknowledged means durable',
  '3 once',
  '4 exact bytes',
  '5 no invented outcomes',
] as const;
const MARKS = '[ ! -e /workspace/marks ] || cat /workspace/marks';

/** Every command of a session was done as it was acknowledged, once, and what it wrote is what was read. */
export async function checkExecs(
  client: PatientClient,
  work: SessionWork,
  add: Add,
): Promise<void> {
  checkIssued(work, add);
  const marks = await marksOf(client, work.session);
  if (!marks) add('7 converges', `${work.session} runs no command any more`);
  for (const operation of work.operations.filter(({ execId }) => execId !== null)) {
    const exec = await factsOf(client, operation);
    if (!exec) add(DURABLE, `${operation.execId} was acknowledged and is gone`, operation);
    else {
      checkOutcome(work, operation, exec, marks, add);
      await checkBytes(client, work, operation, exec, add);
    }
  }
}

/** One exec for each key, and none that nobody was told of. */
export function checkIssued({ session, operations, history }: SessionWork, add: Add): void {
  const issued = new Map<string, number>();
  for (const { event } of history)
    if (event.type === 'ExecIssued')
      issued.set(event.data.execId, (issued.get(event.data.execId) ?? 0) + 1);
  for (const operation of operations) {
    const { answers, execId, refusals } = operation;
    if (refusals.length > 0) add(ONCE, `${execId} was refused: ${refusals.join(', ')}`, operation);
    if (execId === null) continue;
    if (new Set(answers).size > 1)
      add(ONCE, `one key, several execs: ${answers.join(', ')}`, operation);
    const times = issued.get(execId) ?? 0;
    if (times !== 1)
      add(DURABLE, `${execId} was acknowledged, and issued ${times} times`, operation);
  }
  const known = new Set(operations.map(({ execId }) => execId));
  const unknown = [...issued.keys()].filter((id) => !known.has(id));
  if (unknown.length > 0) add(ONCE, `nobody was told of ${unknown.join(', ')} of ${session}`);
}

export function checkOutcome(
  { isStruck, history }: SessionWork,
  operation: Operation,
  { exit, epoch }: ExecFacts,
  marks: Marks | null,
  add: Add,
): void {
  const { execId, kind, code, cancelled } = operation;
  const times = marks?.counts.get(operation.mark) ?? 0;
  const end = JSON.stringify(exit);
  const wrong = (law: string, what: string) => add(law, `${execId} (${kind}) ${what}`, operation);
  if (times > 1) wrong(ONCE, `ran ${times} times`);
  const isKept = history.some(
    ({ event }) => event.type === 'SandboxStarted' && event.data.restored,
  );
  if (times > 0 && epoch !== null && epoch !== marks?.epoch && !isKept)
    wrong(ONCE, `was given to epoch ${epoch} and ran in epoch ${marks?.epoch}`);
  const isCancelled = cancelled !== null && cancelled < 300;
  if (kind === 'cancel' && !isCancelled && exit?.kind !== 'unknown')
    wrong(DURABLE, `was not to be cancelled (${cancelled})`);
  switch (exit?.kind) {
    case 'exited':
      if (kind === 'cancel' || exit.code !== code)
        wrong(OUTCOMES, `ended as ${end}; it was to end with ${code}`);
      else if (marks && !isStruck && times !== 1)
        wrong(OUTCOMES, `ended as ${end} and left ${times} marks`);
      return;
    case 'signalled':
      if (!isCancelled) wrong(OUTCOMES, `ended as ${end}, and nobody cancelled it`);
      return;
    case 'not_started':
      if (times > 0) wrong(OUTCOMES, `ended as ${end} and left ${times} marks`);
      if (!isCancelled && !isStruck) wrong(OUTCOMES, `ended as ${end}, and nothing was done to it`);
      return;
    case 'unknown':
      return;
    default:
      wrong('7 converges', `ended as ${end}`);
  }
}

async function checkBytes(
  client: PatientClient,
  { followers }: SessionWork,
  operation: Operation,
  { exit }: ExecFacts,
  add: Add,
): Promise<void> {
  const { execId, kind, session, code } = operation;
  const wrong = (what: string) => add(BYTES, `${execId} (${kind}): ${what}`, operation);
  const expected = expectedOf(operation);
  const path = `/v1/sessions/${session}/logs?exec=${execId}&stream=${streamOf(operation)}`;
  const { bytes: log, complete, status } = await client.read(path);
  if (!complete) return wrong(`its log cannot be read (${status})`);
  const isWhole = exit?.kind === 'exited' && exit.code === code;
  if (isWhole && !log.equals(expected))
    wrong(`wrote ${expected.length} bytes, its log has ${log.length} others`);
  if (!expected.subarray(0, log.length).equals(log))
    wrong('its log is not the beginning of what it wrote');
  for (const follower of followers.filter((each) => each.operation === operation)) {
    const { by, bytes, finished, shown, fault } = follower;
    if (!finished) wrong(`a follower by ${by} never ended`);
    if (!log.equals(bytes))
      wrong(`a follower by ${by} saw ${bytes.length} bytes that are not the log's ${log.length}`);
    if (shown && !log.equals(shown))
      wrong(`a terminal showed ${shown.length} bytes that are not the log's ${log.length}`);
    if (fault) wrong(`a follower by ${by} was told wrong: ${fault}`);
  }
}

async function factsOf(
  client: PatientClient,
  { session, execId }: Operation,
): Promise<ExecFacts | null> {
  const answer = await client.call('GET', `/v1/sessions/${session}/execs/${execId}`);
  return answer.status === 200 ? answer.json : null;
}

/** How often each exec ran; null when no command could be run to find out. */
async function marksOf(client: PatientClient, session: string): Promise<Marks | null> {
  const path = `/v1/sessions/${session}/execs`;
  const { json } = await client.call(
    'POST',
    `${path}?wait=30s`,
    { command: MARKS },
    `marks-${session}`,
  );
  if (json?.exit?.kind !== 'exited' || json.exit.code !== 0) return null;
  const { bytes } = await client.read(`/v1/sessions/${session}/logs?exec=${json.id}&stream=stdout`);
  const counts = new Map<string, number>();
  for (const mark of bytes.toString().trim().split('\n'))
    counts.set(mark, (counts.get(mark) ?? 0) + 1);
  return { epoch: json.epoch, counts };
}
