import { type CreateBody, type Refused, refuse } from './wire';

/** Reads what came from outside, or says what is wrong with it. */
export function parseCreate(body: Uint8Array): CreateBody | Refused {
  let given: unknown;
  try {
    given = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return refuse('invalid', 'the body is not JSON');
  }
  const { limits, egress, restoreFrom } = fieldsOf(given);
  const { cpus, memoryMiB, diskMiB, pids } = fieldsOf(limits);
  if (!(typeof cpus === 'number' && cpus >= 0.01))
    return refuse('invalid', 'cpus is at least 0.01');
  if (!isWhole(memoryMiB, 16)) return refuse('invalid', 'memoryMiB is a whole number from 16 on');
  if (!isWhole(diskMiB, 16)) return refuse('invalid', 'diskMiB is a whole number from 16 on');
  if (!isWhole(pids, 4)) return refuse('invalid', 'pids is a whole number from 4 on');
  if (typeof egress !== 'boolean') return refuse('invalid', 'egress is true or false');
  if (restoreFrom !== null && typeof restoreFrom !== 'string')
    return refuse('invalid', 'restoreFrom is a checkpoint or null');
  return { limits: { cpus, memoryMiB, diskMiB, pids }, egress, restoreFrom };
}

const fieldsOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? { ...value } : {};

const isWhole = (value: unknown, least: number): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= least;
