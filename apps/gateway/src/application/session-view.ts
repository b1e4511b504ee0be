import type { Lineage, Recorded, SessionEvent, SessionSpec, ShareRight, Stage } from '@vmux/events';
import { applyCheckpoint, type CheckpointView, type Restore } from './checkpoint-view';
import { applyExec, type ExecView } from './exec-view';
import {
  active,
  applySandbox,
  countRun,
  type PendingView,
  type PortView,
  type SandboxView,
  type SessionStatus,
} from './sandbox-view';

export type { SessionStatus };

/** What a session looks like to its readers: a fold of its stream that skips what it does not know. */
export interface SessionView {
  readonly id: string;
  /** Of the last event that is in here; -1 before the first. */
  revision: number;
  position: bigint;
  owner: string;
  name: string;
  /** The scoped key of the request that created it. */
  createdBy: string | null;
  status: SessionStatus;
  /** What is under way, such as `move`; null when nothing is. */
  operation: string | null;
  message: string | null;
  provider: string;
  spec: SessionSpec | null;
  lineage: Lineage | null;
  createdAt: number;
  endedAt: number | null;
  lastActivityAt: number;
  sandbox: SandboxView | null;
  pending: PendingView | null;
  ranMs: Readonly<Record<string, number>>;
  readonly ports: Map<number, PortView>;
  /** By port, as far as it was ever changed. */
  readonly access: Map<number, PortAccessView>;
  readonly execs: Map<string, ExecView>;
  readonly checkpoints: Map<string, CheckpointView>;
  /** The one that a restore takes that names none. */
  lastCheckpoint: string | null;
  restores: readonly Restore[];
  readonly shares: Map<string, ShareView>;
  forks: readonly string[];
  /** The children of each request to fork; as many as `forks` has. */
  readonly forked: Map<string, readonly string[]>;
  stages: readonly { stage: Stage; execId: string | null; at: number }[];
  setup: { manifests: readonly object[]; missingTools: readonly string[] } | null;
}

export interface PortAccessView {
  readonly public: boolean;
  readonly wake: boolean;
  readonly generation: number;
}

export interface ShareView {
  readonly id: string;
  readonly tokenHash: string;
  readonly rights: readonly ShareRight[];
  readonly ports: readonly number[];
  readonly expiresAt: number;
  readonly revokedAt: number | null;
}

export const unborn = (id: string): SessionView => ({
  id,
  revision: -1,
  position: -1n,
  owner: '',
  name: '',
  createdBy: null,
  status: 'unborn',
  operation: null,
  message: null,
  provider: '',
  spec: null,
  lineage: null,
  createdAt: 0,
  endedAt: null,
  lastActivityAt: 0,
  sandbox: null,
  pending: null,
  ranMs: {},
  ports: new Map(),
  access: new Map(),
  execs: new Map(),
  checkpoints: new Map(),
  lastCheckpoint: null,
  restores: [],
  shares: new Map(),
  forks: [],
  forked: new Map(),
  stages: [],
  setup: null,
});

export const hasEnded = ({ status }: SessionView): boolean =>
  status === 'stopped' || status === 'failed' || status === 'deleted';

const MAX_STAGES = 64;
const MAX_FORKS = 200;

/** Changes the view in place: a catch-up of thousands of events copies nothing. */
export function apply(view: SessionView, { event, metadata }: Recorded, position: bigint): void {
  applySession(view, event, metadata.key ?? null);
  applySandbox(view, event);
  applyExec(view, event, position);
  applyCheckpoint(view, event);
  applyRest(view, event);
}

function applySession(view: SessionView, event: SessionEvent, key: string | null): void {
  switch (event.type) {
    case 'SessionCreated': {
      const { owner, name, provider, spec, lineage, at } = event.data;
      Object.assign(view, { owner, name, provider, spec, lineage, createdBy: key });
      Object.assign(view, { status: 'starting', createdAt: at, lastActivityAt: at });
      return;
    }
    case 'StopRequested':
      view.status = 'stopping';
      view.pending = null;
      view.operation = null;
      return;
    case 'SessionStopped':
      ended(view, 'stopped', event.data.at, null);
      return;
    case 'SessionFailed':
      ended(view, 'failed', event.data.at, event.data.message);
      return;
    case 'SessionDeleted':
      view.owner = event.data.owner;
      view.execs.clear();
      view.checkpoints.clear();
      ended(view, 'deleted', event.data.at, null);
      return;
    case 'ActivityObserved':
      active(view, event.data.at);
      return;
  }
}

function ended(view: SessionView, status: SessionStatus, at: number, message: string | null): void {
  view.status = status;
  view.operation = null;
  view.endedAt ??= at;
  countRun(view, at);
  view.sandbox = null;
  view.pending = null;
  view.ports.clear();
  view.message = message ?? view.message;
}

function applyRest(view: SessionView, event: SessionEvent): void {
  switch (event.type) {
    case 'PortOpened': {
      const { port, address, execId, at } = event.data;
      view.ports.set(port, { port, address, execId, openedAt: at });
      return;
    }
    case 'PortClosed':
      view.ports.delete(event.data.port);
      return;
    case 'PortAccessChanged': {
      const { port, public: isPublic, wake, generation } = event.data;
      view.access.set(port, { public: isPublic, wake, generation });
      return;
    }
    case 'SetupDetected':
      view.setup = { manifests: event.data.manifests, missingTools: event.data.missingTools };
      return;
    case 'StageReached': {
      const { stage, execId, at } = event.data;
      view.stages = [...view.stages, { stage, execId, at }].slice(-MAX_STAGES);
      return;
    }
    case 'Forked':
      forked(view, event.data.forkId, event.data.child);
      return;
    case 'ShareGranted': {
      const { shareId: id, tokenHash, rights, ports, expiresAt } = event.data;
      view.shares.set(id, { id, tokenHash, rights, ports, expiresAt, revokedAt: null });
      return;
    }
    case 'ShareRevoked': {
      const share = view.shares.get(event.data.shareId);
      if (share) view.shares.set(share.id, { ...share, revokedAt: event.data.at });
      return;
    }
  }
}

function forked(view: SessionView, forkId: string, child: string): void {
  view.forks = [...view.forks, child].slice(-MAX_FORKS);
  view.forked.set(forkId, [...(view.forked.get(forkId) ?? []), child]);
  for (const oldest of view.forked.keys()) {
    if (view.forked.size <= MAX_FORKS) break;
    view.forked.delete(oldest);
  }
}
