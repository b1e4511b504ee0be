import {
  deriveExecId,
  type ExecSpec,
  fact,
  type Outcome,
  type SessionEvent,
  type SetupFound,
} from '@vmux/events';
import { dispatchedTo, type Existing, type Living, queuedExecs } from './state';

/** Work waits for the set-up of its sandbox; a shell may look on, and set-up may be done by hand. */
export const waitsForSetup = ({ purpose }: ExecSpec): boolean =>
  purpose !== 'setup' && purpose !== 'shell';

export const isSettingUp = (session: Living): boolean =>
  session.current !== null &&
  dispatchedTo(session, session.current.epoch).some(({ spec }) => spec.purpose === 'setup');

/** What a new sandbox found in its files, and the exec that installs it. */
export function setupOf(
  { sessionId, spec }: Living,
  { manifests, missingTools, command }: SetupFound,
  epoch: number,
  at: number,
): SessionEvent[] {
  const detected = fact('SetupDetected', { at, epoch, manifests, missingTools });
  if (command === null || missingTools.length > 0) return [detected];
  const execId = deriveExecId(sessionId, 'setup', String(epoch));
  const setup: ExecSpec = {
    command,
    env: null,
    cwd: spec.cwd,
    user: null,
    pty: null,
    stdin: false,
    timeoutMs: null,
    keepsAwake: true,
    purpose: 'setup',
    service: null,
  };
  return [detected, fact('ExecIssued', { at, execId, epoch, spec: setup, follows: null })];
}

/** The command that a failed set-up was for says so instead of running; the next one runs. */
export const untold = (session: Living, at: number): SessionEvent[] =>
  session.setupFailed === null
    ? []
    : queuedExecs(session)
        .filter(({ spec }) => waitsForSetup(spec))
        .map(({ execId }) =>
          fact('ExecExited', {
            at,
            execId,
            epoch: null,
            outcome: { kind: 'not_started', reason: 'setup_failed', message: session.setupFailed },
            sizes: { stdout: 0, stderr: 0, pty: 0 },
            usage: null,
          }),
        );

export const lacking = (missingTools: readonly string[]): string | null =>
  missingTools.length === 0
    ? null
    : `set-up needs ${missingTools.join(', ')}, which the sandbox does not have: use an image that has it, or create the session without set-up`;

/** How an exec's end changes what is to be told of the set-up. */
export function afterSetup(session: Existing, execId: string, outcome: Outcome): string | null {
  if (outcome.kind === 'not_started' && outcome.reason === 'setup_failed') return null;
  if (session.execs[execId]?.spec.purpose !== 'setup') return session.setupFailed;
  if (outcome.kind === 'exited' && outcome.code === 0) return null;
  return `the set-up ${ending(outcome)}: its log is that of ${execId}`;
}

function ending(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'exited':
      return `ended with ${outcome.code}`;
    case 'signalled':
      return `was ended by ${outcome.signal}`;
    case 'not_started':
      return `did not start (${outcome.message ?? outcome.reason})`;
  }
}
