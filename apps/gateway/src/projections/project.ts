import type { Outcome, SessionEvent, SessionEventNamed, Sizes, Usage } from '@vmux/events';
import type { SessionUsage } from '../application/session-index';
import { NO_USAGE, type SessionRow } from './session-row';

/** An event that this version knows, with its place. */
export interface Placed {
  readonly event: SessionEvent;
  readonly revision: number;
  readonly position: bigint;
}

const MAX_PORTS = 64;
const MAX_OPEN_EXECS = 1000;

/** The row after the event; null: there is no such session, or no longer. */
export function project(row: SessionRow | null, placed: Placed): SessionRow | null {
  const { event, revision } = placed;
  if (row && revision <= row.revision) return row;
  if (event.type === 'SessionDeleted') return null;
  if (event.type === 'SessionCreated') return row ?? created(event, placed);
  if (!row) return null;
  const changed = changedBy(row, event);
  return { ...changed, revision, updatedAt: Math.max(row.updatedAt, event.data.at) };
}

function created({ data }: SessionEventNamed<'SessionCreated'>, placed: Placed): SessionRow {
  return {
    id: data.sessionId,
    owner: data.owner,
    name: data.name,
    status: 'starting',
    provider: data.provider,
    labels: data.spec.labels,
    parent: data.lineage?.parent ?? null,
    createdPosition: String(placed.position),
    revision: placed.revision,
    createdAt: data.at,
    updatedAt: data.at,
    lastActivityAt: data.at,
    endedAt: null,
    sandbox: null,
    pending: null,
    waking: false,
    ports: [],
    execs: { issued: 0, succeeded: 0, failed: 0, unknown: 0 },
    openExecs: {},
    timings: { requestedAt: null, startedAt: null, stages: {} },
    usage: NO_USAGE,
  };
}

function changedBy(row: SessionRow, event: SessionEvent): SessionRow {
  switch (event.type) {
    case 'SandboxRequested': {
      const { epoch, provider, at } = event.data;
      const timings = { requestedAt: at, startedAt: null, stages: {} };
      return { ...row, pending: { epoch, provider }, waking: false, timings };
    }
    case 'SandboxStarted':
      return started(row, event);
    case 'SandboxFailed':
      return row.pending?.epoch === event.data.epoch ? { ...row, pending: null } : row;
    case 'SandboxLost':
      return withoutSandbox(row, event.data, 'lost');
    case 'SandboxReleased':
      return withoutSandbox(row, event.data, 'released');
    case 'RunnerReassigned':
      return row.sandbox?.epoch === event.data.epoch
        ? { ...row, sandbox: { ...row.sandbox, runnerId: event.data.to } }
        : row;
    case 'SandboxSuspended':
      return row.sandbox ? { ...row, status: 'suspended' } : row;
    case 'SandboxResumed':
      return row.sandbox ? active({ ...row, status: 'running' }, event.data.at) : row;
    case 'SuspendFailed':
      return active(row, event.data.at);
    case 'RehydrateRequested':
      return { ...row, waking: true };
    case 'RestoreFailed':
      return { ...row, pending: null, waking: false };
    case 'MoveFailed':
      return { ...row, pending: null };
    case 'StopRequested':
      return { ...row, status: 'stopping', pending: null, waking: false };
    case 'SessionStopped':
      return over(row, 'stopped', event.data.at);
    case 'SessionFailed':
      return over(row, 'failed', event.data.at);
    case 'ActivityObserved':
      return active(row, event.data.at);
    case 'PortOpened':
      return { ...row, ports: withPort(row.ports, event.data.port) };
    case 'PortClosed':
      return { ...row, ports: row.ports.filter((port) => port !== event.data.port) };
    case 'StageReached': {
      const { stage, epoch, at } = event.data;
      if (epoch !== (row.pending ?? row.sandbox)?.epoch || row.timings.stages[stage]) return row;
      const stages = { ...row.timings.stages, [stage]: at };
      return { ...row, timings: { ...row.timings, stages } };
    }
    case 'ExecIssued':
      return issued(row, event);
    case 'ExecStarted':
      return event.data.execId in row.openExecs
        ? { ...row, openExecs: { ...row.openExecs, [event.data.execId]: true } }
        : row;
    case 'ExecExited': {
      const { execId, outcome, sizes, usage, at } = event.data;
      return active(ended(row, execId, succeeded(outcome), sizes, usage), at);
    }
    case 'ExecOutcomeUnknown':
      return ended(row, event.data.execId, 'unknown', event.data.sizes, null);
    default:
      return row;
  }
}

function started(row: SessionRow, { data }: SessionEventNamed<'SandboxStarted'>): SessionRow {
  const { epoch, runnerId, at } = data;
  if (row.pending?.epoch !== epoch) return row;
  return active(
    {
      ...row,
      status: 'running',
      provider: row.pending.provider,
      sandbox: { epoch, runnerId, startedAt: at },
      pending: null,
      waking: false,
      ports: [],
      timings: { ...row.timings, startedAt: at },
      usage: sandboxEnded(row, at),
    },
    at,
  );
}

function withoutSandbox(
  row: SessionRow,
  { epoch, at }: { readonly epoch: number; readonly at: number },
  status: 'lost' | 'released',
): SessionRow {
  if (row.sandbox?.epoch !== epoch) return row;
  return {
    ...row,
    status: row.status === 'stopping' ? 'stopping' : status,
    sandbox: null,
    ports: [],
    usage: sandboxEnded(row, at),
  };
}

const over = (row: SessionRow, status: 'stopped' | 'failed', at: number): SessionRow => ({
  ...row,
  status,
  endedAt: row.endedAt ?? at,
  sandbox: null,
  pending: null,
  waking: false,
  ports: [],
  openExecs: {},
  usage: sandboxEnded(row, at),
});

const active = (row: SessionRow, at: number): SessionRow => ({
  ...row,
  lastActivityAt: Math.max(row.lastActivityAt, at),
});

function withPort(ports: readonly number[], port: number): readonly number[] {
  if (ports.includes(port) || ports.length >= MAX_PORTS) return ports;
  return [...ports, port].sort((a, b) => a - b);
}

function issued(row: SessionRow, { data }: SessionEventNamed<'ExecIssued'>): SessionRow {
  const open = Object.keys(row.openExecs).length < MAX_OPEN_EXECS;
  return active(
    {
      ...row,
      execs: { ...row.execs, issued: row.execs.issued + 1 },
      openExecs: open ? { ...row.openExecs, [data.execId]: false } : row.openExecs,
    },
    data.at,
  );
}

const succeeded = (outcome: Outcome): 'succeeded' | 'failed' =>
  outcome.kind === 'exited' && outcome.code === 0 ? 'succeeded' : 'failed';

function ended(
  row: SessionRow,
  execId: string,
  as: 'succeeded' | 'failed' | 'unknown',
  sizes: Sizes,
  usage: Usage | null,
): SessionRow {
  const { [execId]: open, ...openExecs } = row.openExecs;
  if (open === undefined) return row;
  const { [as]: before } = row.execs;
  return {
    ...row,
    openExecs,
    execs: { ...row.execs, [as]: before + 1 },
    usage: {
      cpuMs: row.usage.cpuMs + (usage?.cpuMs ?? 0),
      peakMemoryBytes: Math.max(row.usage.peakMemoryBytes, usage?.peakMemoryBytes ?? 0),
      readBytes: row.usage.readBytes + (usage?.readBytes ?? 0),
      writtenBytes: row.usage.writtenBytes + (usage?.writtenBytes ?? 0),
      outputBytes: row.usage.outputBytes + sizes.stdout + sizes.stderr + sizes.pty,
      sandboxMs: row.usage.sandboxMs,
    },
  };
}

const sandboxEnded = ({ sandbox, usage }: SessionRow, at: number): SessionUsage =>
  sandbox ? { ...usage, sandboxMs: usage.sandboxMs + Math.max(0, at - sandbox.startedAt) } : usage;
