import { readFileSync } from 'node:fs';
import type { CreateOptions, RehydratePolicy } from '@vmux/sdk';
import { commandOf, type Parsed } from '../arguments';
import { Failure, UsageError } from '../failure';
import { isPort, isRehydratePolicy, REHYDRATE_POLICIES, type Settings } from '../project/settings';
import { projectIn, type Target } from '../project/vmux-toml';
import { nearest } from '../suggest';
import { visible } from '../terminal/escape';
import { variablesFrom } from './follow';

export const runOptions = {
  detach: { type: 'boolean', short: 'd' },
  env: { type: 'string', short: 'e', multiple: true },
  'env-file': { type: 'string', multiple: true },
  port: { type: 'string', short: 'p', multiple: true },
  public: { type: 'boolean' },
  wake: { type: 'boolean' },
  name: { type: 'string' },
  provider: { type: 'string' },
  gpu: { type: 'string' },
  image: { type: 'string' },
  cpus: { type: 'string' },
  memory: { type: 'string' },
  label: { type: 'string', multiple: true },
  timeout: { type: 'string' },
  'idle-timeout': { type: 'string' },
  keep: { type: 'string' },
  'max-runtime': { type: 'string' },
  'checkpoint-every': { type: 'string' },
  rehydrate: { type: 'string' },
  egress: { type: 'boolean' },
  setup: { type: 'string' },
  rm: { type: 'boolean' },
  stdin: { type: 'boolean', short: 'i' },
  tty: { type: 'boolean', short: 't' },
  'no-bundle': { type: 'boolean' },
  'dry-run': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** What is to be run, and in what. */
export interface RunPlan {
  readonly command: string | readonly string[];
  readonly target: string | null;
  readonly timeoutMs: number | undefined;
  readonly ports: readonly number[];
  /** A line to run before the command; null when none is given. */
  readonly setupLine: string | null;
  readonly create: Omit<CreateOptions, 'vmux'>;
}

/** From the options, over what the target of vmux.toml says. */
export async function runPlan(given: Parsed): Promise<RunPlan> {
  const target = await targetOf(given);
  const said: Settings = target ?? {};
  const command = target?.command ?? commandOf(given, 'vmux run -- echo hello');
  const asked = given.texts('port').map(portFrom);
  const ports = asked.length > 0 ? asked : (said.ports ?? []);
  const setup = given.text('setup') ?? said.setup;
  const setupLine = setup !== undefined && setup !== 'auto' && setup !== 'none' ? setup : null;
  const cpus = given.amount('cpus') ?? said.cpus;
  const memoryMiB = given.size('memory') ?? said.memoryMiB;
  const gpu = given.text('gpu') ?? said.gpu;
  const idleTimeoutMs = given.duration('idle-timeout') ?? said.idleTimeoutMs;
  const keepMs = given.duration('keep') ?? said.keepMs;
  const maxRuntimeMs = given.duration('max-runtime') ?? said.maxRuntimeMs;
  const checkpointEveryMs = given.duration('checkpoint-every') ?? said.checkpointEveryMs;
  const rehydrate = rehydrateFrom(given.text('rehydrate')) ?? said.rehydrate;
  const policy = { idleTimeoutMs, keepMs, maxRuntimeMs, checkpointEveryMs, rehydrate };
  return {
    ...{ command, ports, setupLine, target: target?.name ?? null },
    timeoutMs: given.duration('timeout') ?? said.timeoutMs,
    create: {
      name: given.text('name') ?? target?.name,
      directory: process.cwd(),
      provider: given.text('provider') ?? said.provider,
      image: given.text('image') ?? said.image,
      ...(said.build?.length && !given.text('image') ? { build: said.build } : {}),
      env: {
        ...said.env,
        ...Object.assign({}, ...given.texts('env-file').map(variablesIn)),
        ...variablesFrom(given.texts('env')),
      },
      labels: labelsFrom(given.texts('label')),
      ...(ports.length > 0 ? { ports } : {}),
      ...(given.has('egress') || said.egress ? { egress: true } : {}),
      ...(setup === 'auto' || setup === 'none' ? { setup } : {}),
      ...(cpus || memoryMiB || gpu ? { resources: { cpus, memoryMiB, gpu } } : {}),
      ...(Object.values(policy).some((each) => each !== undefined) ? { policy } : {}),
    },
  };
}

function rehydrateFrom(text: string | undefined): RehydratePolicy | undefined {
  if (text === undefined || isRehydratePolicy(text)) return text;
  throw new UsageError(`--rehydrate takes ${REHYDRATE_POLICIES.join(', ')}, not "${text}"`);
}

/** The target that is named, or the default one; null when a command is given. */
async function targetOf({ positionals, command }: Parsed): Promise<Target | null> {
  const [name, extra] = positionals;
  if (command !== null) {
    if (name === undefined) return null;
    throw new UsageError(
      `vmux run does not take "${name}" and a command`,
      'give the name of a target, or a command after --',
    );
  }
  if (extra !== undefined)
    throw new UsageError(
      `vmux run takes one target, not "${positionals.join(' ')}"`,
      `to run a command put it after --: vmux run -- ${positionals.join(' ')}`,
    );
  const project = await projectIn(process.cwd());
  if (!project) {
    if (name === undefined) return null;
    throw new UsageError(
      `there is no vmux.toml here that could have a target "${name}"`,
      `to run a command put it after --: vmux run -- ${name}`,
    );
  }
  const wanted = name ?? project.defaultName;
  const names = project.targets.map((target) => target.name);
  const found = project.targets.find((target) => target.name === wanted);
  if (found) return found;
  if (wanted === null)
    throw new UsageError(
      'vmux.toml has no default target',
      `name one: vmux run ${names.join(' | ') || 'NAME'}`,
    );
  const meant = nearest(wanted, names);
  throw new UsageError(
    `vmux.toml has no target "${wanted}"${meant ? `: did you mean ${meant}?` : ''}`,
    `it has ${names.join(', ') || 'none'}; to run a command put it after --`,
  );
}

function portFrom(text: string): number {
  const port = /^\d{1,6}$/.test(text) ? Number(text) : null;
  if (isPort(port)) return port;
  throw new UsageError(`-p takes a port from 1 to 65535, not "${text}"`);
}

/** `NAME=value` lines; `#` begins a comment line, quotes around a value are taken off. */
function variablesIn(file: string): Record<string, string> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (fault) {
    throw new Failure(`--env-file cannot be read: ${(fault as Error).message}`);
  }
  const found: Record<string, string> = {};
  for (const [index, raw] of text.split('\n').entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const [, name, value = ''] =
      /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(line) ?? [];
    if (name === undefined)
      throw new Failure(`${visible(file)}:${index + 1}: not NAME=value`, 'correct the line');
    found[name] = /^(["'])(.*)\1$/.exec(value)?.[2] ?? value;
  }
  return found;
}

function labelsFrom(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      if (at <= 0) throw new UsageError(`--label takes name=value, not "${text}"`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}
