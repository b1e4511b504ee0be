import { join } from 'node:path';

/** Where programs lie that were unpacked for this user; scripts/setup.mjs puts them there. */
export const programsIn = (dataPath: string): string => join(dataPath, 'programs');

/** Names the image of nats-server where no program of it can be had; scripts/setup.mjs chooses it. */
export const natsImageIn = (dataPath: string): string => join(programsIn(dataPath), 'nats-image');
