import type {
  CancelCause,
  ExecSpec,
  Outcome,
  SessionEvent,
  Sizes,
  UnknownReason,
  Usage,
} from '@vmux/events';

export type ExecStatus = 'queued' | 'dispatched' | 'running' | 'exited' | 'unknown';

/** Small on purpose: a session may have very many. The whole spec stands at `issuedRevision`. */
export interface ExecView {
  readonly id: string;
  readonly commandSummary: string;
  readonly purpose: ExecSpec['purpose'];
  readonly pty: boolean;
  readonly follows: string | null;
  readonly issuedAt: number;
  readonly issuedRevision: number;
  /** Everything that it writes comes after this position and before that of its end. */
  readonly issuedPosition: bigint;
  endedPosition: bigint | null;
  status: ExecStatus;
  epoch: number | null;
  pid: number | null;
  startedAt: number | null;
  endedAt: number | null;
  cancelRequested: boolean;
  /** Who wanted it to end first; null while nobody does. */
  cancelCause: CancelCause | null;
  outcome: Outcome | null;
  unknownReason: UnknownReason | null;
  sizes: Sizes | null;
  usage: Usage | null;
}

export const execHasEnded = ({ status }: ExecView): boolean =>
  status === 'exited' || status === 'unknown';

/** As much of a session as its execs change. */
export interface HasExecs {
  readonly revision: number;
  lastActivityAt: number;
  readonly execs: Map<string, ExecView>;
}

const SUMMARY_CHARS = 200;

export function applyExec(view: HasExecs, event: SessionEvent, position: bigint): void {
  if (event.type === 'ExecIssued') {
    const { execId, spec, epoch, follows, at } = event.data;
    view.lastActivityAt = Math.max(view.lastActivityAt, at);
    view.execs.set(execId, {
      ...{ id: execId, commandSummary: summaryOf(spec), purpose: spec.purpose, follows, epoch },
      ...{ pty: spec.pty !== null, issuedAt: at, issuedRevision: view.revision },
      ...{ issuedPosition: position, endedPosition: null },
      status: epoch === null ? 'queued' : 'dispatched',
      ...{ pid: null, startedAt: null, endedAt: null, cancelRequested: false, cancelCause: null },
      ...{ outcome: null, unknownReason: null, sizes: null, usage: null },
    });
    return;
  }
  if (!('execId' in event.data) || typeof event.data.execId !== 'string') return;
  const exec = view.execs.get(event.data.execId);
  if (!exec || execHasEnded(exec)) return;
  switch (event.type) {
    case 'ExecDispatched':
      exec.status = 'dispatched';
      exec.epoch = event.data.epoch;
      return;
    case 'ExecStarted':
      exec.status = 'running';
      exec.epoch = event.data.epoch;
      exec.pid = event.data.pid;
      exec.startedAt = event.data.at;
      return;
    case 'ExecCancelRequested':
      exec.cancelRequested = true;
      exec.cancelCause ??= event.data.cause;
      return;
    case 'ExecExited': {
      const { outcome, sizes, usage, at } = event.data;
      Object.assign(exec, { status: 'exited', outcome, sizes, usage, endedAt: at });
      exec.endedPosition = position;
      view.lastActivityAt = Math.max(view.lastActivityAt, at);
      return;
    }
    case 'ExecOutcomeUnknown': {
      const { reason, sizes, at } = event.data;
      Object.assign(exec, { status: 'unknown', unknownReason: reason, sizes, endedAt: at });
      exec.endedPosition = position;
      return;
    }
  }
}

function summaryOf({ command }: ExecSpec): string {
  const whole = command.kind === 'shell' ? command.line : command.argv.join(' ');
  return whole.length > SUMMARY_CHARS ? `${whole.slice(0, SUMMARY_CHARS - 1)}…` : whole;
}
