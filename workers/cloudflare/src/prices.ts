import { instanceTypeFor } from './instance-types';
import type { Limits } from './wire';

/**
 * What Cloudflare asks for a container while it runs: memory and disk as the instance type has them,
 * processor time as it is used. As published at `source` and read on `readOn`; what a plan includes, and
 * requests, egress and storage, are not in it.
 */
export const CLOUDFLARE_PRICES = {
  source: 'https://developers.cloudflare.com/containers/pricing/',
  readOn: '2026-08-03',
  perVcpuSecondUsd: 0.00002,
  perGiBSecondUsd: 0.0000025,
  perGBSecondUsd: 0.00000007,
} as const;

export interface CostRange {
  /** With idle processors, and with busy ones. */
  readonly leastUsd: number;
  readonly mostUsd: number;
}

export function cloudflareCostOf(limits: Limits, ranMs: number): CostRange {
  const type = instanceTypeFor(limits);
  if ('refused' in type) return { leastUsd: 0, mostUsd: 0 };
  const { perVcpuSecondUsd, perGiBSecondUsd, perGBSecondUsd } = CLOUDFLARE_PRICES;
  const seconds = ranMs / 1000;
  const held = (type.memoryMiB / 1024) * perGiBSecondUsd + (type.diskMB / 1000) * perGBSecondUsd;
  return {
    leastUsd: seconds * held,
    mostUsd: seconds * (held + type.vcpus * perVcpuSecondUsd),
  };
}
