import type { Limits } from './wire';

export interface InstanceType {
  readonly name: string;
  /** The binding and the Durable Object class whose containers are of this type. */
  readonly binding: string;
  readonly className: string;
  readonly vcpus: number;
  readonly memoryMiB: number;
  readonly diskMB: number;
}

/** Smallest first. A container's size belongs to its class, so there is one class for each. */
export const INSTANCE_TYPES: readonly InstanceType[] = [
  {
    name: 'lite',
    binding: 'SandboxLite',
    className: 'SandboxLite',
    vcpus: 1 / 16,
    memoryMiB: 256,
    diskMB: 2_000,
  },
  {
    name: 'basic',
    binding: 'SandboxBasic',
    className: 'SandboxBasic',
    vcpus: 1 / 4,
    memoryMiB: 1_024,
    diskMB: 4_000,
  },
  {
    name: 'standard-1',
    binding: 'Sandbox',
    className: 'SandboxStandard1',
    vcpus: 1 / 2,
    memoryMiB: 4_096,
    diskMB: 8_000,
  },
  {
    name: 'standard-2',
    binding: 'SandboxStandard2',
    className: 'SandboxStandard2',
    vcpus: 1,
    memoryMiB: 6_144,
    diskMB: 12_000,
  },
  {
    name: 'standard-3',
    binding: 'SandboxStandard3',
    className: 'SandboxStandard3',
    vcpus: 2,
    memoryMiB: 8_192,
    diskMB: 16_000,
  },
  {
    name: 'standard-4',
    binding: 'SandboxStandard4',
    className: 'SandboxStandard4',
    vcpus: 4,
    memoryMiB: 12_288,
    diskMB: 20_000,
  },
];

/** The smallest type that has what is asked for, or why there is none. */
export function instanceTypeFor(
  { cpus, memoryMiB, diskMiB }: Limits,
  offered: readonly string[] = INSTANCE_TYPES.map(({ name }) => name),
): InstanceType | { readonly refused: string } {
  const largest = INSTANCE_TYPES.at(-1);
  const found = INSTANCE_TYPES.find(
    (type) =>
      offered.includes(type.name) &&
      type.vcpus >= cpus &&
      type.memoryMiB >= memoryMiB &&
      type.diskMB * 1_000_000 >= diskMiB * 1_048_576,
  );
  if (found || !largest) return found ?? { refused: 'Cloudflare offers no instance type' };
  const { vcpus, memoryMiB: most, diskMB } = largest;
  return {
    refused: `no Cloudflare instance has ${cpus} vCPU, ${memoryMiB} MiB and ${diskMiB} MiB of disk: ask for at most ${vcpus} vCPU, ${most} MiB and ${Math.floor((diskMB * 1_000_000) / 1_048_576)} MiB`,
  };
}
