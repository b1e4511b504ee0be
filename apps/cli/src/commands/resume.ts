import { rest } from './suspend';

/** Wakes sessions that are suspended, released or lost. */
export const resume = (args: readonly string[]): Promise<number> => rest('resume', args);
