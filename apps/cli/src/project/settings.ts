import type { RehydratePolicy } from '@vmux/sdk';

/** What a table of vmux.toml can say, and what options say too. */
export interface Settings {
  /** A line for the shell, or a list that is run as it is. */
  readonly command?: string | readonly string[];
  readonly ports?: readonly number[];
  readonly provider?: string;
  readonly gpu?: string;
  readonly image?: string;
  /** Run on top of the image, once for all. */
  readonly build?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** `auto`, `none`, or a line that is run before the command. */
  readonly setup?: string;
  readonly cpus?: number;
  readonly memoryMiB?: number;
  readonly timeoutMs?: number;
  readonly idleTimeoutMs?: number;
  readonly keepMs?: number;
  readonly maxRuntimeMs?: number;
  readonly checkpointEveryMs?: number;
  readonly rehydrate?: RehydratePolicy;
  readonly egress?: boolean;
}

export type Table = Readonly<Record<string, unknown>>;
type Wrong = (message: string, key: string) => Error;

const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const unitMiB = { M: 1, MiB: 1, MB: 1, G: 1024, GiB: 1024, GB: 1024 } as const;

/** `500ms`, `30s`, `5m`, `1h`; null for anything else. */
export function milliseconds(text: string): number | null {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text) ?? [];
  return amount && unit ? Number(amount) * unitMs[unit as keyof typeof unitMs] : null;
}

/** `512M`, `2G`; null for anything else. */
export function mebibytes(text: string): number | null {
  const [, amount, unit] = /^(\d{1,7}(?:\.\d{1,3})?)(M|MiB|MB|G|GiB|GB)$/.exec(text) ?? [];
  if (!amount || !unit) return null;
  return Math.ceil(Number(amount) * unitMiB[unit as keyof typeof unitMiB]);
}

export const REHYDRATE_POLICIES: readonly RehydratePolicy[] = ['on_demand', 'immediately', 'never'];

export const isRehydratePolicy = (value: unknown): value is RehydratePolicy =>
  REHYDRATE_POLICIES.some((each) => each === value);

export const isPort = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 65_535;

const variable = /^[A-Za-z_][A-Za-z0-9_]{0,254}$/;
const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/** One reader for each key; undefined where the value is not of its kind. */
const readers: Readonly<
  Record<string, readonly [key: keyof Settings, what: string, read: (value: unknown) => unknown]>
> = {
  command: [
    'command',
    'a line for the shell or a list of arguments',
    (value) =>
      isText(value) || (Array.isArray(value) && value.length > 0 && value.every(isText))
        ? value
        : undefined,
  ],
  ports: [
    'ports',
    'a list of ports from 1 to 65535',
    (value) => (Array.isArray(value) && value.every(isPort) ? value : undefined),
  ],
  provider: ['provider', 'the name of a provider', textOf],
  gpu: ['gpu', 'the name of a GPU, such as "T4"', textOf],
  image: ['image', 'the name of an image, or { from = "NAME", run = ["LINE", …] }', imageOf],
  setup: ['setup', '"auto", "none" or a line for the shell', textOf],
  env: ['env', 'a table of variables: { NAME = "value" }', variablesOf],
  cpus: [
    'cpus',
    'a number',
    (value) => (typeof value === 'number' && value > 0 ? value : undefined),
  ],
  memory: ['memoryMiB', 'a size such as "512M" or "2G"', (value) => sized(value, mebibytes)],
  timeout: ['timeoutMs', 'a time such as "30s" or "5m"', (value) => sized(value, milliseconds)],
  'idle-timeout': ['idleTimeoutMs', 'a time such as "30m"', (value) => sized(value, milliseconds)],
  keep: ['keepMs', 'a time such as "24h"', (value) => sized(value, milliseconds)],
  'max-runtime': ['maxRuntimeMs', 'a time such as "8h"', (value) => sized(value, milliseconds)],
  'checkpoint-every': [
    'checkpointEveryMs',
    'a time such as "15m"',
    (value) => sized(value, milliseconds),
  ],
  rehydrate: [
    'rehydrate',
    '"on_demand", "immediately" or "never"',
    (value) => (isRehydratePolicy(value) ? value : undefined),
  ],
  egress: ['egress', 'true or false', (value) => (typeof value === 'boolean' ? value : undefined)],
};

/** The keys of a table, over what it starts from; variables are put together. */
export function settingsFrom(table: Table, base: Settings, wrong: Wrong): Settings {
  const found: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(table)) {
    const reader = Object.hasOwn(readers, key) ? readers[key] : undefined;
    if (!reader)
      throw wrong(`there is no key "${key}"; known: ${Object.keys(readers).join(', ')}`, key);
    const [name, what, read] = reader;
    const good = read(value);
    if (good === undefined) throw wrong(`${key} must be ${what}`, key);
    if (name === 'image') Object.assign(found, good);
    else found[name] = name === 'env' ? { ...base.env, ...(good as object) } : good;
  }
  return found as Settings;
}

const maxSteps = 32;
const isStep = (value: unknown): value is string =>
  typeof value === 'string' && /^[^\0\r\n]{1,2000}$/.test(value);

/** The steps of another image go with it. */
function imageOf(value: unknown): Pick<Settings, 'image' | 'build'> | undefined {
  if (isText(value)) return { image: value, build: undefined };
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const { from, run = [], ...rest } = value as Table;
  if (Object.keys(rest).length > 0 || (from !== undefined && !isText(from))) return undefined;
  if (!Array.isArray(run) || run.length > maxSteps || !run.every(isStep)) return undefined;
  return { image: from, build: run };
}

function textOf(value: unknown): string | undefined {
  return isText(value) ? value : undefined;
}

function sized(value: unknown, conversion: (text: string) => number | null): number | undefined {
  return typeof value === 'string' ? (conversion(value) ?? undefined) : undefined;
}

function variablesOf(value: unknown): Readonly<Record<string, string>> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const entries = Object.entries(value).map(([name, each]) => [
    name,
    typeof each === 'number' || typeof each === 'boolean' ? String(each) : each,
  ]);
  const areGood = entries.every(
    ([name, each]) => typeof each === 'string' && variable.test(String(name)),
  );
  return areGood ? Object.fromEntries(entries) : undefined;
}
