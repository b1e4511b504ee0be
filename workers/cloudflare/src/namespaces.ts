import type { Env } from './env';
import type { ObjectNamespace } from './platform';
import type { RunnerSandbox } from './runner-sandbox';

/** The sandboxes of one instance type; undefined where it was not deployed. */
export function namespaceOf(env: Env, binding: string): ObjectNamespace<RunnerSandbox> | undefined {
  return env[binding] as ObjectNamespace<RunnerSandbox> | undefined;
}
