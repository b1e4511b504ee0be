import { randomBytes } from 'node:crypto';
import { access } from 'node:fs/promises';
import { release } from 'node:os';
import {
  type Capability,
  type DriverCapabilities,
  DriverRefused,
  type OtherLimit,
  type SandboxDriver,
  SandboxError,
  type SandboxId,
  type SandboxSpec,
} from '@vmux/runner-kit';
import { notDelegated } from './ns-delegated';
import { canFirewall } from './ns-egress';
import type { NsHost } from './ns-host';

const never = {
  gpu: 'ns sandboxes see no devices',
  build: 'ns sandboxes have the programs of this machine',
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
  host(): Promise<NsHost>;
}

/** Found by creating a sandbox, not by looking for what one would need. */
export async function tryNs(trial: NsTrial, signal?: AbortSignal): Promise<DriverCapabilities> {
  try {
    if (process.platform !== 'linux') throw new DriverRefused('unsupported', 'needs Linux');
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
  const host = await trial.host();
  const optional: readonly [Capability, string | undefined][] = [
    ['suspend', host.whyNoFreezer],
    ['checkpoint', host.whyNoFreezer ?? host.disks.whyNot],
    ['fork', host.whyNoFreezer ?? host.disks.whyNot],
    ['egress', await whyNoEgress(trial, host)],
    ['diskLimit', host.user.isRoot ? undefined : 'a disk of its own, which is limited, needs root'],
  ];
  return {
    available: true,
    reason: null,
    offered: ['pty', 'previews', ...optional.flatMap(([name, why]) => (why ? [] : [name]))],
    missing: {
      ...never,
      ...Object.fromEntries(optional.filter(([, why]) => why !== undefined)),
      ...(host.user.isRoot ? {} : whyNoLimits(host.user.delegated?.controllers ?? [])),
    },
  };
}

async function whyNoEgress({ egress }: NsTrial, { user }: NsHost): Promise<string | undefined> {
  if (!egress) return 'egress is not switched on for this runner';
  if (!user.isRoot) return 'a network that is guarded needs root';
  return whyNot(canFirewall);
}

/** Without root it is what was delegated; processes are counted by user namespace since Linux 5.14. */
function whyNoLimits(controllers: readonly string[]): Partial<Record<OtherLimit, string>> {
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const counts = major > 5 || (major === 5 && minor >= 14);
  const isDelegated = (name: string) => controllers.includes(name);
  return {
    ...(isDelegated('memory') ? {} : { memoryLimit: notDelegated }),
    ...(isDelegated('cpu') ? {} : { cpuLimit: notDelegated }),
    ...(counts || isDelegated('pids') ? {} : { pidsLimit: notDelegated }),
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
