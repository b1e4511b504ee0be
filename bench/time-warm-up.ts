import { interleaved } from './interleaved';
import { figure, median, quantile } from './report';
import { filling } from './time-rivals';
import type { TimeSubject } from './time-subject';

/** What runs for days is measured once its hot code is compiled, and apart from that as it was at first. */
export const WARM_UP = { execs: 1000, rests: 300, rounds: 40 };
const FIRST = 15;
const FIRST_ROUNDS = 5;

export interface First {
  readonly rows: string[][];
  readonly figures: Record<string, number>;
}

/** In a session of its own, so that the histories of those that are measured are short. */
export async function warmUp(vmux: TimeSubject): Promise<First> {
  const session = await vmux.created();
  await vmux.run(session, filling('/workspace', 0, 10));
  const resumes = await resumed(vmux, session, FIRST);
  const { checkpoints, forks } = await round(vmux, session, FIRST_ROUNDS);
  for (let at = 0; at < WARM_UP.execs; at += 1) await vmux.run(session, ['/bin/true']);
  await resumed(vmux, session, WARM_UP.rests - FIRST);
  await round(vmux, session, WARM_UP.rounds - FIRST_ROUNDS);
  await vmux.stop(session);
  const row = (title: string, times: readonly number[]) => [
    `${title}: vmux, the first ${times.length} after a start`,
    ...[figure(median(times)), figure(quantile(times, 0.99)), '–'],
  ];
  return {
    rows: [
      row('checkpoint of 500 kB', checkpoints),
      row('fork of 500 kB → first exec', forks),
      row('resume', resumes),
    ],
    figures: { resume_first_ms: median(resumes) },
  };
}

async function resumed(vmux: TimeSubject, session: string, rounds: number) {
  const { it = [] } = await interleaved(rounds - 1, {
    it: { before: () => vmux.ask(session, 'suspend'), timed: () => vmux.ask(session, 'resume') },
  });
  return it;
}

async function round(vmux: TimeSubject, session: string, rounds: number) {
  let [last, child] = ['', ''];
  const { checkpoints = [], forks = [] } = await interleaved(rounds - 1, {
    checkpoints: {
      timed: async () => {
        last = await vmux.checkpoint(session);
      },
      after: () => vmux.archived(session, last),
    },
    forks: {
      timed: async () => {
        child = await vmux.fork(session, last);
        await vmux.run(child, ['/bin/true']);
      },
      after: () => vmux.stop(child),
    },
    rollbacks: { timed: () => vmux.rollback(session, last) },
  });
  return { checkpoints, forks };
}
