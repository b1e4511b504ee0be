import type { SessionSpec } from '@vmux/events';
import {
  CLOUDFLARE_PRICES,
  type CostRange,
  cloudflareCostOf,
} from '../../../../workers/cloudflare/src/prices';
import { MODAL_PRICES, modalCostOf } from './modal-prices';
import type { SessionView } from './session-view';

interface Price {
  readonly prices: { readonly source: string; readonly readOn: string };
  costOf(resources: SessionSpec['resources'], ranMs: number): CostRange;
}

/** Providers that send a bill; the others are the user's own machines. */
const PRICED: Readonly<Record<string, Price>> = {
  cloudflare: { prices: CLOUDFLARE_PRICES, costOf: cloudflareCostOf },
  modal: { prices: MODAL_PRICES, costOf: modalCostOf },
};

const rounded = (usd: number): number => Math.round(usd * 1e6) / 1e6;

/** What a session has cost so far at its providers' published prices; null when nobody sends a bill. */
export function costJson(view: SessionView, now: number) {
  const { spec } = view;
  if (!spec) return null;
  const byProvider = Object.entries(ranMsOf(view, now)).flatMap(([provider, ranMs]) => {
    const price = Object.hasOwn(PRICED, provider) ? PRICED[provider] : undefined;
    if (!price) return [];
    const { leastUsd, mostUsd } = price.costOf(spec.resources, ranMs);
    const { source, readOn } = price.prices;
    const prices = { source, readOn };
    return [{ provider, ranMs, leastUsd: rounded(leastUsd), mostUsd: rounded(mostUsd), prices }];
  });
  if (byProvider.length === 0) return null;
  const sum = (of: keyof CostRange) =>
    rounded(byProvider.reduce((total, each) => total + each[of], 0));
  return { estimated: true, leastUsd: sum('leastUsd'), mostUsd: sum('mostUsd'), byProvider };
}

/** How long sandboxes have run, the present one too. */
export function ranMsOf(
  { ranMs, sandbox, provider }: SessionView,
  now: number,
): Record<string, number> {
  if (!sandbox) return ranMs;
  const running = Math.max(0, now - sandbox.startedAt);
  return { ...ranMs, [provider]: (ranMs[provider] ?? 0) + running };
}
