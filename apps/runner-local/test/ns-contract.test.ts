import { join } from 'node:path';
import { driverContract } from '@vmux/runner-kit/contract';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { firstProcessOf, isRoot, newNsDriver, nsOptions } from './ns-target';

afterAll(releaseAll);

driverContract(
  'ns',
  async () => {
    const options = nsOptions();
    const program = join(projectRoot(), 'dist/apps/runner-local/test/ns-contract-runner.js');
    return {
      openDriver: () => newNsDriver(options),
      killFromOutside: async (id) => void process.kill(firstProcessOf(options, id), 'SIGKILL'),
      runner: { command: process.execPath, args: [program, JSON.stringify(options)] },
      image: null,
      close: async () => undefined,
    };
  },
  describeUnless(isRoot, 'namespaces with mapped ids need root on Linux'),
);
