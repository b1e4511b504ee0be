import { NO_OUTPUT, type Outcome, type ReplayItem, type Report, type Sizes } from '@vmux/events';
import {
  checkpoint,
  checkpointNo,
  command,
  exec,
  key,
  ON_NS,
  report,
  systemCommand,
} from './domain-makers';

/** What clients, runners and deadlines say about sandboxes, ready to be sent. */

export const lost = report('SandboxLost', { evidence: { kind: 'probe', message: 'gone' } });
export const ready = (epoch: number, restoredDigest: string | null = null, runnerId = 'ns-1') =>
  report(
    'SandboxReady',
    { base: null, restoredDigest },
    { epoch, instance: `i-${epoch}`, runnerId },
  );
export const failed = (epoch: number, retryable: boolean) =>
  report('SandboxFailed', { message: 'no room', retryable }, { epoch, instance: `i-${epoch}` });
export const place = (placement = ON_NS) => systemCommand('PlaceSandbox', {}, { placement });
export const suspend = command('SuspendSession', {});
export const resume = command('ResumeSession', {});
export const suspended = (request: number) => report('SandboxSuspended', { request });
export const resumed = (request: number) => report('SandboxResumed', { request });
export const take = (number: number) =>
  command(
    'TakeCheckpoint',
    { checkpointId: checkpointNo(number), name: null },
    { key: key(`take-${number}`) },
  );
export const taken = (number: number, epoch = 1): Report =>
  report(
    'CheckpointTaken',
    { checkpoint: checkpoint(number, epoch) },
    { epoch, instance: `i-${epoch}` },
  );
export const notTaken = (number: number) =>
  report('CheckpointFailed', { checkpointId: checkpointNo(number), message: 'disk full' });
export const rehydrate = (
  force = false,
  replay: readonly ReplayItem[] = [],
  more: { readonly whyNoReplay?: string } = {},
) =>
  command('RehydrateSession', {
    checkpointId: null,
    provider: null,
    allowBaseChange: false,
    force,
    replay,
    ...more,
  });
export const rollback = (number: number) =>
  command('RollbackSession', { checkpointId: checkpointNo(number), allowBaseChange: false });
export const move = (provider = 'docker') =>
  command('MoveSession', { provider, checkpointId: checkpointNo(9), allowBaseChange: false });
export const fork = (checkpointId: string | null = null) =>
  command('ForkSession', {
    forkId: 'f000000000001',
    checkpointId,
    newCheckpointId: checkpointNo(8),
    name: 'web',
    count: 2,
    provider: null,
  });

export const started = (number: number): Report =>
  report('ExecStarted', { execId: exec(number), pid: 7 });

export const exited = (
  number: number,
  sizes: Partial<Sizes> = {},
  outcome: Outcome = { kind: 'exited', code: 0 },
): Report =>
  report('ExecExited', {
    ...{ execId: exec(number), outcome, usage: null },
    sizes: { ...NO_OUTPUT, ...sizes },
  });

/** A log with that much output of the first exec. */
export const logWith = (stdout: number) => ({
  epoch: 1,
  closed: false,
  streams: { [exec(1)]: { next: { ...NO_OUTPUT, stdout }, resizes: 0, issued: 3 } },
});
