import { randomBytes } from 'node:crypto';
import { access } from 'node:fs/promises';
import {
  type Capability,
  type DriverCapabilities,
  DriverRefused,
  type SandboxDriver,
  SandboxError,
  type SandboxId,
  type SandboxSpec,
} from '@vmux/runner-kit';
import { canFirewall } from './ns-egress';

const never = {
  gpu: 'ns sandboxes see no devices',
  memorySnapshot: 'the ns driver takes no memory snapshots',
} as const;

/** Not a session's: made to see whether one can be made, or to read a checkpoint in. */
const TRIAL = { sessionId: 'probe-0000', epoch: 0 } as const;
export const isTrial = (id: SandboxId): boolean =>
  id.sessionId === TRIAL.sessionId && id.epoch === TRIAL.epoch;

export const trialSpec = (): SandboxSpec => ({
  id: { ...TRIAL, instance: randomBytes(8).toString('hex') },
  limits: { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 32 },
  image: null,
  egress: false,
  gpu: null,
});

export interface NsTrial {
  readonly driver: Pick<SandboxDriver, 'create' | 'destroy'>;
  readonly programs: readonly string[];
  readonly egress: boolean;
  hasFreezer(): Promise<boolean>;
  whyNoClones(): Promise<string | undefined>;
}

/** Found by creating a sandbox, not by looking for what one would need. */
export async function tryNs(trial: NsTrial, signal?: AbortSignal): Promise<DriverCapabilities> {
  try {
    if (process.platform !== 'linux') throw new DriverRefused('unsupported', 'needs Linux');
    if (process.getuid?.() !== 0) throw new DriverRefused('unsupported', 'needs root');
    for (const program of trial.programs)
      await access(program).catch(() => {
        throw new DriverRefused('unsupported', `${program} is missing: build it`);
      });
    const spec = trialSpec();
    await trial.driver.create(spec, { signal });
    await trial.driver.destroy(spec.id);
  } catch (fault) {
    if (!(fault instanceof SandboxError) || fault.next === 'retry') throw fault;
    return { available: false, reason: fault.message, offered: [], missing: never };
  }
  const switchedOff = 'egress is not switched on for this runner';
  const noFreezer = (await trial.hasFreezer()) ? undefined : 'this machine has no cgroup freezer';
  const noNative = noFreezer ?? (await trial.whyNoClones());
  const optional: readonly [Capability, string | undefined][] = [
    ['suspend', noFreezer],
    ['checkpoint', noNative],
    ['fork', noNative],
    ['egress', trial.egress ? await whyNot(canFirewall) : switchedOff],
  ];
  return {
    available: true,
    reason: null,
    offered: [
      'pty',
      'previews',
      'diskLimit',
      ...optional.flatMap(([name, why]) => (why ? [] : [name])),
    ],
    missing: { ...never, ...Object.fromEntries(optional.filter(([, why]) => why !== undefined)) },
  };
}

async function whyNot(attempt: () => Promise<void>): Promise<string | undefined> {
  try {
    await attempt();
    return undefined;
  } catch (fault) {
    if (fault instanceof SandboxError) return fault.message;
    throw fault;
  }
}
