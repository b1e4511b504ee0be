import type { Env } from './env';
import { namespaceOf } from './namespaces';
import type { Registry } from './registry';
import { nameText } from './runner-sandbox';

const defaultMinutes = 120;
const atOnce = 100;

/**
 * Destroys sandboxes that no runner has asked for in a long time and in which nobody is connected and
 * nothing runs: what a runner that will never come back has left.
 */
export async function reapLeaked(
  env: Env,
  registry: Pick<Registry, 'untouchedSince' | 'touch' | 'markDestroyed'>,
  nowMs: number,
): Promise<number> {
  const minutes = Number(env.VMUX_LEAKED_AFTER_MINUTES ?? defaultMinutes);
  const leakedBeforeMs = nowMs - minutes * 60_000;
  let reaped = 0;
  for (const { name, binding } of await registry.untouchedSince(leakedBeforeMs, atOnce)) {
    const namespace = namespaceOf(env, binding);
    const object = namespace?.get(namespace.idFromName(nameText(name)));
    if (object && (await object.isInUse())) await registry.touch(name, nowMs);
    else {
      await object?.destroySandbox(name, null);
      await registry.markDestroyed(name, nowMs);
      reaped += 1;
    }
  }
  return reaped;
}
