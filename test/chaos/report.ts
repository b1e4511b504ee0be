import type { Violation } from './checker';
import type { PatientClient } from './client';
import type { Faults } from './nemesis';
import type { Tried } from './points';
import type { Script } from './workload';

export interface Outcome {
  readonly seed: number;
  readonly faults: Faults;
  /** By named point; none where that kind of fault was not wanted. */
  readonly points: ReadonlyMap<string, Tried>;
  readonly script: Script;
  readonly client: PatientClient;
  readonly settleMs: number;
  readonly violations: readonly Violation[];
  readonly json: boolean;
}

/** One table, then each violation with the seed and the shortest history that shows it. */
export function report(outcome: Outcome): void {
  const { seed, faults, points, script, client, settleMs, violations, json } = outcome;
  const bytes = script.followers.reduce((sum, follower) => sum + follower.bytes.length, 0);
  const drops = script.followers.reduce((sum, follower) => sum + follower.drops, 0);
  const { time } = script;
  const operations = script.operations.length + time.verbs.length + time.writes.size;
  const rows: [string, string | number][] = [
    ...Object.entries(faults.counts).sort(([one], [other]) => one.localeCompare(other)),
    ...[...points].map(([name, { tried, reached }]): [string, string] => [
      `  ${name}`,
      reached > 0 ? `${reached} of ${tried}` : `NEVER, tried ${tried}`,
    ]),
    ['operations acknowledged', script.operations.filter(({ execId }) => execId).length],
    ...verbRows(script),
    ['trees written', time.writes.size],
    ['trees looked at', time.looks.size],
    ['requests', client.requests],
    ['requests that failed and were repeated', client.failures],
    ['sessions whose sandbox could not be made', client.failedCreations],
    ['bytes followed', bytes],
    ['followers dropped and resumed', drops],
    ['events followed', script.watches.reduce((sum, { seen }) => sum + seen.length, 0)],
    ['settled after, ms', settleMs],
    ['violations', violations.length],
  ];
  for (const [name, value] of rows) console.log(`${name.padEnd(56)} ${value}`);
  for (const { law, what, history = [] } of violations) {
    console.log(`\nVIOLATION of ${law}: ${what}\n  seed ${seed}`);
    for (const line of history) console.log(`  ${line}`);
  }
  if (!json) return;
  console.log(
    JSON.stringify({
      faults: Object.values(faults.counts).reduce((sum, count) => sum + count, 0),
      operations,
      bytes,
      violations: violations.length,
      settle_ms_max: settleMs,
      points: Object.fromEntries([...points].map(([name, { reached }]) => [name, reached])),
    }),
  );
}

function verbRows({ time }: Script): [string, string][] {
  const taken = new Map<string, number>();
  const refused = new Map<string, number>();
  for (const { name, answers } of time.verbs) {
    const counts = answers.some(({ status }) => status < 300) ? taken : refused;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...new Set([...taken.keys(), ...refused.keys()])]
    .sort()
    .map((name) => [name, `${taken.get(name) ?? 0}, refused ${refused.get(name) ?? 0}`]);
}
