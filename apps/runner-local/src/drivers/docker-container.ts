import type { SandboxId, SandboxLimits, SandboxSpec } from '@vmux/runner-kit';
import type { ContainerCreateOptions } from 'dockerode';

/** Ours, inside the container; never part of a checkpoint. */
export const OURS = '.vmux';
export const SUPERVISOR = `/${OURS}/supervisor`;
export const SOCKET = `/${OURS}/socket`;
const SPOOL = `/${OURS}/spool`;

const label = (name: string) => `dev.vmux.${name}`;
export const RUNNER_LABEL = label('runner');
const RESTORED_LABEL = label('restored-from');

/** What a container was made of that is made of a checkpoint. */
export interface Restored {
  readonly ref: string;
  readonly sinceNs: string;
}

/**
 * What a workload that is root inside may still do: manage its own files, users and processes, and listen
 * on low ports. Everything that reaches the kernel, other namespaces or raw sockets is gone.
 */
const keptCapabilities = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'NET_BIND_SERVICE',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_CHROOT',
];

/** A request chooses the image and the limits; nothing of it reaches any other field. */
export function containerOptions(
  { id, limits }: SandboxSpec,
  image: string,
  runnerId: string,
  limitsDisk: boolean,
  restored: Restored | null,
): ContainerCreateOptions {
  return {
    name: containerName(id),
    Hostname: id.sessionId,
    Image: image,
    User: '0:0',
    WorkingDir: '/',
    Entrypoint: [
      SUPERVISOR,
      'run',
      `--listen=${SOCKET}`,
      `--spool=${SPOOL}`,
      `--epoch=${id.epoch}`,
      `--instance=${id.instance}`,
      '--lease-seconds=0',
      ...(restored ? [`--since-ns=${restored.sinceNs}`] : []),
    ],
    Cmd: [],
    Healthcheck: { Test: ['NONE'] },
    Labels: {
      ...labelsOf(id, limits),
      [RUNNER_LABEL]: runnerId,
      ...(restored ? { [RESTORED_LABEL]: restored.ref } : {}),
    },
    HostConfig: {
      NetworkMode: 'none',
      Privileged: false,
      CapDrop: ['ALL'],
      CapAdd: keptCapabilities,
      SecurityOpt: ['no-new-privileges:true'],
      Memory: limits.memoryMiB * 1024 * 1024,
      MemorySwap: limits.memoryMiB * 1024 * 1024,
      NanoCpus: Math.round(limits.cpus * 1e9),
      PidsLimit: limits.pids,
      ...(limitsDisk ? { StorageOpt: { size: `${limits.diskMiB}M` } } : {}),
      IpcMode: 'private',
      Init: false,
      RestartPolicy: { Name: 'no' },
      // Output is the supervisor's; the engine's copy would be a second, unbounded one.
      LogConfig: { Type: 'none', Config: {} },
    },
  };
}

export const containerName = ({ sessionId, epoch, instance }: SandboxId): string =>
  `vmux-${sessionId}-${epoch}-${instance}`;

const labelsOf = (id: SandboxId, limits: SandboxLimits): Record<string, string> => ({
  [label('session')]: id.sessionId,
  [label('epoch')]: String(id.epoch),
  [label('instance')]: id.instance,
  [label('limits')]: JSON.stringify(limits),
});

/** What the labels say of a container, or nothing when it is not one of ours. */
export function sandboxOf(labels: Readonly<Record<string, string>>):
  | {
      readonly id: SandboxId;
      readonly limits: SandboxLimits;
      readonly restoredFrom: string | null;
    }
  | undefined {
  const sessionId = labels[label('session')];
  const epoch = Number(labels[label('epoch')]);
  const instance = labels[label('instance')];
  const limits = labels[label('limits')];
  if (!sessionId || !Number.isSafeInteger(epoch) || !instance || !limits) return undefined;
  const id = { sessionId, epoch, instance };
  const restoredFrom = labels[RESTORED_LABEL] ?? null;
  return { id, limits: JSON.parse(limits) as SandboxLimits, restoredFrom };
}
