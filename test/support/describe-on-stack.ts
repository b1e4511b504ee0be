import {
  describeUnless,
  noDockerEngineBecause,
  releaseAll,
  startDockerEngine,
} from '@vmux/testing';
import { EmbeddedStack } from './embedded-stack';

interface Needs {
  /** An engine beside it, where there can be one. */
  readonly docker?: boolean;
  /** More of the environment that it is started with. */
  readonly env?: NodeJS.ProcessEnv;
}

/** A group of tests that share the stack of one machine, with sandboxes that need root. */
export function describeOnStack({
  docker = false,
  env = {},
}: Needs = {}): (title: string, group: (stack: EmbeddedStack) => void) => void {
  const describeOnLinux = describeUnless(
    process.getuid?.() === 0,
    'namespace sandboxes need root on Linux',
  );
  return (title, group) =>
    describeOnLinux(title, () => {
      const stack = new EmbeddedStack();
      beforeAll(async () => {
        const hasDocker = docker && noDockerEngineBecause() === undefined;
        await stack.start(hasDocker ? await startDockerEngine() : null, env);
      }, 180_000);
      afterAll(async () => {
        await stack.stop();
        await releaseAll();
      }, 120_000);
      group(stack);
    });
}
