import { join } from 'node:path';

/** Where programs lie that were unpacked for this user; scripts/setup.mjs puts them there. */
export const programsIn = (dataPath: string): string => join(dataPath, 'programs');
