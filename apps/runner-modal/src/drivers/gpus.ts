import { DriverRefused } from '@vmux/runner-kit';

/** What Modal offers, and how many of each one sandbox may have. */
const MOST_PER_SANDBOX: Readonly<Record<string, number>> = {
  T4: 8,
  L4: 8,
  A10: 4,
  L40S: 8,
  A100: 8,
  'A100-40GB': 8,
  'A100-80GB': 8,
  'RTX-PRO-6000': 8,
  H100: 8,
  'H100!': 8,
  H200: 8,
  B200: 8,
  'B200+': 8,
};
/** Names that people use for what Modal calls otherwise. */
const ALIASES: Readonly<Record<string, string>> = { A10G: 'A10' };

/** Every name that is taken, and how many of it one sandbox may have. */
export const GPUS: Readonly<Record<string, number>> = {
  ...MOST_PER_SANDBOX,
  ...Object.fromEntries(
    Object.entries(ALIASES).map(([alias, name]) => [alias, MOST_PER_SANDBOX[name] ?? 1]),
  ),
};

/** `T4`, `a10g:2`, … as Modal wants it; the SDK itself checks nothing. */
export function gpuOf(asked: string): string {
  const [, name = '', count = '1'] = /^([A-Za-z0-9!+-]+)(?::(\d{1,3}))?$/.exec(asked) ?? [];
  const upper = name.toUpperCase();
  const kind = ALIASES[upper] ?? upper;
  const most = MOST_PER_SANDBOX[kind];
  if (most === undefined) {
    const known = Object.keys(MOST_PER_SANDBOX).join(', ');
    throw new DriverRefused('invalid', `Modal has no GPU "${asked}": choose one of ${known}`);
  }
  const wanted = Number(count);
  if (wanted < 1 || wanted > most)
    throw new DriverRefused('invalid', `a sandbox has 1 to ${most} of ${kind}, not ${count}`);
  return wanted === 1 ? kind : `${kind}:${wanted}`;
}
