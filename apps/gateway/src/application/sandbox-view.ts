import type { SessionEvent, SessionEventData } from '@vmux/events';

export type SessionStatus =
  | 'unborn'
  | 'starting'
  | 'running'
  | 'suspended'
  | 'released'
  | 'lost'
  | 'stopping'
  | 'stopped'
  | 'failed'
  | 'deleted';

export interface SandboxView {
  readonly epoch: number;
  readonly instance: string;
  readonly runnerId: string;
  readonly startedAt: number;
}

export interface PortView {
  readonly port: number;
  readonly address: string;
  readonly execId: string | null;
  readonly openedAt: number;
}

/** Asked for and not there yet. */
export interface PendingView {
  readonly epoch: number;
  readonly provider: string;
  readonly runnerId: string;
}

/** As much of a session as its sandboxes change. */
export interface HasSandbox {
  status: SessionStatus;
  operation: string | null;
  message: string | null;
  provider: string;
  lastActivityAt: number;
  sandbox: SandboxView | null;
  pending: PendingView | null;
  /** By provider: how long sandboxes have run that are no more. */
  ranMs: Readonly<Record<string, number>>;
  readonly ports: Map<number, PortView>;
}

/** An event of a sandbox that is no longer, or not yet, the session's changes nothing. */
export function applySandbox(view: HasSandbox, event: SessionEvent): void {
  switch (event.type) {
    case 'SandboxRequested': {
      const { epoch, provider, runnerId } = event.data;
      view.pending = { epoch, provider, runnerId };
      return;
    }
    case 'SandboxStarted':
      started(view, event.data);
      return;
    case 'RunnerReassigned':
      if (view.sandbox?.epoch === event.data.epoch)
        view.sandbox = { ...view.sandbox, runnerId: event.data.to };
      return;
    case 'SandboxFailed':
      if (view.pending?.epoch !== event.data.epoch) return;
      view.pending = null;
      view.message = event.data.message;
      return;
    case 'SandboxLost':
      if (view.sandbox?.epoch === event.data.epoch) lost(view, event.data.at);
      return;
    case 'SandboxReleased':
      if (view.sandbox?.epoch !== event.data.epoch) return;
      withoutSandbox(view, 'released', event.data.at);
      view.operation = null;
      return;
    case 'SuspendRequested':
      view.operation = 'suspend';
      return;
    case 'SandboxSuspended':
      if (view.sandbox?.epoch !== event.data.epoch) return;
      view.status = 'suspended';
      view.operation = null;
      return;
    case 'ResumeRequested':
      view.operation = 'resume';
      return;
    case 'SandboxResumed':
      if (view.sandbox?.epoch !== event.data.epoch) return;
      view.status = 'running';
      view.operation = null;
      active(view, event.data.at);
      return;
    case 'SuspendFailed':
      active(view, event.data.at);
      failed(view, event.data.message);
      return;
    case 'ResumeFailed':
      failed(view, event.data.message);
      return;
    case 'RestoreFailed':
      if (view.operation !== 'rehydrate' && view.operation !== 'rollback') return;
      view.pending = null;
      failed(view, event.data.message);
      return;
    case 'MoveFailed':
      if (view.operation !== 'move') return;
      view.pending = null;
      failed(view, event.data.message);
      return;
    case 'CheckpointFailed':
      if (view.operation !== 'release') return;
      active(view, event.data.at);
      failed(view, event.data.message);
      return;
    case 'ReleaseRequested':
      view.operation = 'release';
      return;
    case 'RehydrateRequested':
      view.pending = null;
      view.operation = 'rehydrate';
      return;
    case 'RollbackRequested':
      view.operation = 'rollback';
      return;
    case 'MoveRequested':
      view.operation = 'move';
      return;
    case 'Moved':
    case 'RolledBack':
      view.operation = null;
      return;
  }
}

function started(view: HasSandbox, data: SessionEventData<'SandboxStarted'>): void {
  const { epoch, instance, runnerId, at } = data;
  if (view.pending?.epoch !== epoch) return;
  countRun(view, at);
  view.provider = view.pending.provider;
  view.pending = null;
  view.sandbox = { epoch, instance, runnerId, startedAt: at };
  view.status = 'running';
  view.ports.clear();
  // A rollback or a move ends with its own event.
  if (view.operation === 'rehydrate') view.operation = null;
  active(view, at);
}

/** A restore into the next sandbox goes on without the one that was lost. */
const SURVIVES_LOSS = ['rehydrate', 'rollback', 'move'];

function lost(view: HasSandbox, at: number): void {
  withoutSandbox(view, 'lost', at);
  if (view.operation && !SURVIVES_LOSS.includes(view.operation)) view.operation = null;
}

function withoutSandbox(view: HasSandbox, status: 'lost' | 'released', at: number): void {
  countRun(view, at);
  view.sandbox = null;
  view.ports.clear();
  if (view.status !== 'stopping') view.status = status;
}

/** Before the session is without its sandbox, or has another. */
export function countRun(view: HasSandbox, at: number): void {
  const { sandbox, provider, ranMs } = view;
  if (!sandbox) return;
  const ran = Math.max(0, at - sandbox.startedAt);
  view.ranMs = { ...ranMs, [provider]: (ranMs[provider] ?? 0) + ran };
}

export function active(view: HasSandbox, at: number): void {
  view.lastActivityAt = Math.max(view.lastActivityAt, at);
}

function failed(view: HasSandbox, message: string): void {
  view.operation = null;
  view.message = message;
}
