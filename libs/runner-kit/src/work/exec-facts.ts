import { constants } from 'node:os';
import type { ClearEnv, ExecSpec, Outcome, Sizes, Stream, Usage } from '@vmux/events';
import type { SandboxDriver, SandboxId } from '../driver';
import type { ExecOutcome, ExecState, Figures } from '../supervisor-answers';

/** Between the words of the history and the words of the supervisor. */

export const WORKSPACE = '/workspace';

/** What was asked for, or the driver's own, or the usual one. */
export const workspaceOf = (
  { id, driver }: { readonly id: SandboxId; readonly driver: SandboxDriver },
  cwd: string | null,
): string => cwd ?? driver.workspaceOf?.(id) ?? WORKSPACE;

export const defaultPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export const argvOf = ({ command }: ExecSpec): readonly string[] =>
  command.kind === 'argv' ? command.argv : ['/bin/sh', '-c', command.line];

/** What was given wins over what is customary. */
export function environmentOf(
  sessionId: string,
  spec: ExecSpec,
  given: ClearEnv,
  workspace: string,
): ClearEnv {
  return {
    PATH: pathOf(workspace),
    HOME: spec.user === null || spec.user === 'root' ? '/root' : `/home/${spec.user}`,
    LANG: 'C.UTF-8',
    ...(spec.pty ? { TERM: 'xterm-256color' } : {}),
    // A sandbox is a system of its own: nobody else manages its Python.
    PIP_BREAK_SYSTEM_PACKAGES: '1',
    VMUX_SESSION: sessionId,
    ...given,
  };
}

/** What set-up installs into a workspace comes first. */
const pathOf = (workspace: string): string =>
  `${workspace}/.venv/bin:${workspace}/node_modules/.bin:${defaultPath}`;

/** Undefined while it runs, and for an exec whose end nobody saw. */
export function outcomeOf(outcome: ExecOutcome): Outcome | undefined {
  switch (outcome.kind) {
    case 'exited':
      return { kind: 'exited', code: outcome.code };
    case 'signalled':
      return { kind: 'signalled', signal: signalName(outcome.signal) };
    case 'cancelled':
      return { kind: 'not_started', reason: 'cancelled', message: null };
    case 'failed':
      return {
        kind: 'not_started',
        reason: 'spawn_failed',
        message: `${errnoName(outcome.errno)} (${stageTexts[outcome.stage]})`,
      };
    case 'starting':
    case 'running':
    case 'lost':
      return undefined;
  }
}

const stageTexts = {
  user: 'looking up the user',
  cwd: 'entering the directory',
  exec: 'running the program',
  setup: 'setting up',
} as const;

export const sizesOf = (exec: ExecState): Sizes =>
  exec.pty
    ? { stdout: 0, stderr: 0, pty: exec.stdoutBytes }
    : { stdout: exec.stdoutBytes, stderr: exec.stderrBytes, pty: 0 };

/** Null for an exec that never ran, or that nobody waited for. */
export const usageOf = ({
  cpuUs,
  memoryPeakBytes,
  readBytes,
  writtenBytes,
}: Figures): Usage | null =>
  cpuUs === undefined
    ? null
    : {
        cpuMs: Math.round(cpuUs / 1000),
        peakMemoryBytes: memoryPeakBytes ?? 0,
        readBytes: readBytes ?? 0,
        writtenBytes: writtenBytes ?? 0,
      };

export const streamOf = (exec: ExecState, kind: 'stdout' | 'stderr'): Stream =>
  exec.pty ? 'pty' : kind;

const signalsByNumber = new Map(
  Object.entries(constants.signals).map(([name, number]) => [number as number, name]),
);

const firstRealTimeSignal = 34;

/** By Linux numbers, whatever runs this: sandboxes are Linux. */
export const signalName = (number: number): string =>
  number >= firstRealTimeSignal
    ? `SIGRTMIN+${number - firstRealTimeSignal}`
    : (signalsByNumber.get(number) ?? `SIGRT${number}`);

export function signalNumber(name: string): number | undefined {
  const realTime = /^SIGRTMIN\+(\d{1,2})$/.exec(name)?.[1];
  if (realTime !== undefined) return firstRealTimeSignal + Number(realTime);
  return (constants.signals as Readonly<Record<string, number>>)[name];
}

const errnoNames = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));
const errnoName = (errno: number): string => errnoNames.get(errno) ?? `error ${errno}`;
