import { createHash } from 'node:crypto';
import type { SandboxId, SandboxLimits } from '@vmux/runner-kit';

type Tags = Readonly<Record<string, string>>;

export const TAG = {
  runner: 'vmux-runner',
  session: 'vmux-session',
  epoch: 'vmux-epoch',
  instance: 'vmux-instance',
  limits: 'vmux-limits',
  /** The snapshot that its files are from. */
  restored: 'vmux-restored',
  /** Its supervisor has answered. */
  made: 'vmux-made',
  destroyed: 'vmux-destroyed',
} as const;

export const nameOf = ({ sessionId, epoch, instance }: SandboxId): string =>
  `vmux-${createHash('sha256').update(`${sessionId}/${epoch}/${instance}`).digest('hex').slice(0, 40)}`;

export const idTags = ({ sessionId, epoch, instance }: SandboxId): Record<string, string> => ({
  [TAG.session]: sessionId,
  [TAG.epoch]: String(epoch),
  [TAG.instance]: instance,
});

export const limitTags = ({ cpus, memoryMiB, diskMiB, pids }: SandboxLimits): Tags => ({
  [TAG.limits]: [cpus, memoryMiB, diskMiB, pids].join(' '),
});

interface Recorded {
  readonly id: SandboxId;
  readonly limits: SandboxLimits;
  readonly restoredFrom: string | null;
}

export function recordedIn(tags: Tags): Recorded | undefined {
  const sessionId = tags[TAG.session];
  const instance = tags[TAG.instance];
  const epoch = Number(tags[TAG.epoch]);
  const [cpus, memoryMiB, diskMiB, pids] = (tags[TAG.limits] ?? '').split(' ').map(Number);
  if (!sessionId || !instance || !Number.isSafeInteger(epoch)) return undefined;
  if (!cpus || !memoryMiB || !diskMiB || !pids) return undefined;
  const limits = { cpus, memoryMiB, diskMiB, pids };
  const restoredFrom = tags[TAG.restored] ?? null;
  return { id: { sessionId, epoch, instance }, limits, restoredFrom };
}

export const nameIn = (tags: Tags): string | undefined => {
  const ours = recordedIn(tags);
  return ours && nameOf(ours.id);
};
