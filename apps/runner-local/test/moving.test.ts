import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { movingBetween } from '@vmux/runner-kit/contract';
import {
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  startDockerEngine,
  temporaryDirectory,
} from '@vmux/testing';
import { DockerDriver } from '../src/drivers/docker-driver';
import { newNsDriver, nsOptions } from './ns-target';

afterAll(releaseAll);

const reason = noDockerEngineBecause();
const unused = {
  killFromOutside: async () => undefined,
  runner: { command: 'false', args: [] },
};

movingBetween(
  'docker and ns',
  [
    async () => {
      const engine = await startDockerEngine();
      const openDriver = () =>
        new DockerDriver({
          runnerId: 'test',
          endpoint: { host: `unix://${engine.socketPath}`, source: 'the test' },
          defaultImage: engine.image,
          supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
        });
      return { ...unused, openDriver, image: engine.image, close: () => engine.stop() };
    },
    async () => {
      const root = temporaryDirectory('root');
      // The engine's own image was made of it.
      const archive = join(projectRoot(), 'dist/cache/bookworm.tar');
      execFileSync('tar', ['-C', root, '-xpf', archive]);
      const options = { ...nsOptions(), images: { bookworm: root } };
      const openDriver = () => newNsDriver(options);
      return { ...unused, openDriver, image: 'bookworm', close: async () => undefined };
    },
  ],
  describeUnless(reason === undefined, reason ?? ''),
);
