import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { driverContract } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { firstProcessOf } from './ns-target';
import { RootlessDriver } from './rootless-driver';
import {
  asUser,
  hasIdTools,
  rootlessOptions,
  whyNotRootless,
  withLentIds,
  withOneId,
} from './rootless-target';

afterAll(releaseAll);

const user = hasIdTools ? withLentIds : withOneId;
const why = whyNotRootless(withOneId);

driverContract(
  `ns without root, ${hasIdTools ? 'with lent ids' : 'with a single id (newuidmap is not installed)'}`,
  async () => {
    const who = user();
    const options = rootlessOptions(who);
    const program = join(projectRoot(), 'dist/apps/runner-local/test/ns-contract-runner.js');
    return {
      openDriver: () => new RootlessDriver(options, who),
      killFromOutside: async (id) => void process.kill(firstProcessOf(options, id), 'SIGKILL'),
      runner: asUser(who, process.execPath, [program, JSON.stringify(options)]),
      handOver: (directory) =>
        void execFileSync('chown', ['-R', `${who.uid}:${who.uid}`, directory]),
      image: null,
      close: async () => undefined,
    };
  },
  describeUnless(why === '', why),
  { memoryLimit: 'control groups need root' },
);
