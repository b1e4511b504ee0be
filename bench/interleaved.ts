import { figure, median, quantile } from './report';

export type Timed = () => Promise<unknown>;
export type Times = Readonly<Record<string, readonly number[]>>;

/** Work whose beginning and end are not what is measured. */
export interface Staged {
  before?(): Promise<unknown>;
  timed(): Promise<unknown>;
  after?(): Promise<unknown>;
}

/**
 * Runs the rivals in turn, so that whatever the machine does meanwhile befalls all of them. Milliseconds. Whoever has more
 * than one `inARow` finds the processor's caches as it left them itself, and not as its rival did.
 */
export async function interleaved(
  rounds: number,
  rivals: Readonly<Record<string, Staged | null>>,
  inARow = 1,
): Promise<Times> {
  const running = Object.entries(rivals).flatMap(([name, work]) => (work ? [{ name, work }] : []));
  const times = new Map<string, number[]>(running.map(({ name }) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    for (const { name, work } of running) {
      for (let at = 0; at < inARow; at++) {
        const took = await timed(work);
        if (round >= 0) times.get(name)?.push(took);
      }
    }
  }
  return Object.fromEntries(times);
}

async function timed(work: Staged): Promise<number> {
  await work.before?.();
  const started = performance.now();
  await work.timed();
  const took = performance.now() - started;
  await work.after?.();
  return took;
}

/** The median of the ratios, each taken within its own round. */
export const ratioOf = (times: Times, subject: string, rival: string): number =>
  median((times[subject] ?? []).map((time, n) => time / (times[rival]?.[n] ?? Number.NaN)));

export const rowsOf = (title: string, times: Times, subject: string): string[][] =>
  Object.entries(times).map(([name, measured]) => [
    `${title}: ${name}`,
    figure(median(measured)),
    figure(quantile(measured, 0.99)),
    name === subject ? '1' : figure(ratioOf(times, subject, name)),
  ]);
