import type { SessionSpec } from '@vmux/events';
import type { CostRange } from '../../../../workers/cloudflare/src/prices';

/**
 * What Modal asks for a second of a sandbox, in US dollars, before discounts, regions and plans, as others
 * reported its pricing page in June 2026. A GPU that is not listed here is not counted.
 */
export const MODAL_PRICES = {
  source: 'modal.com/pricing',
  readOn: '2026-06',
  /** Of a physical core, which has two processors. A sandbox's rate is three times a function's. */
  core: 0.00003942,
  gibibyte: 0.00000672,
  gpu: {
    T4: 0.000164,
    L4: 0.000222,
    A10: 0.000306,
    L40S: 0.000542,
    A100: 0.000583,
    'A100-40GB': 0.000583,
    'A100-80GB': 0.000694,
    'RTX-PRO-6000': 0.000842,
    H100: 0.001097,
    H200: 0.001261,
    B200: 0.001736,
  } as Readonly<Record<string, number>>,
} as const;

const LEAST_CORES = 0.125;

/** The request is the limit, and the larger of request and use is billed: there is nothing between. */
export function modalCostOf(
  { cpus, memoryMiB, gpu }: SessionSpec['resources'],
  ranMs: number,
): CostRange {
  const { core, gibibyte, gpu: gpus } = MODAL_PRICES;
  const [name = '', count = '1'] = (gpu ?? '').toUpperCase().replace(/[!+]/g, '').split(':');
  const accelerator = (gpus[name === 'A10G' ? 'A10' : name] ?? 0) * Number(count);
  const perSecond =
    Math.max(LEAST_CORES, cpus / 2) * core + (memoryMiB / 1024) * gibibyte + accelerator;
  const usd = (ranMs / 1000) * perSecond;
  return { leastUsd: usd, mostUsd: usd };
}
