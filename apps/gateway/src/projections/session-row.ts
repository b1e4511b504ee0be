import type {
  ExecCounts,
  SessionSummary,
  SessionUsage,
  Timings,
} from '../application/session-index';
import type { SessionStatus } from '../application/session-view';

/** Raised whenever the same history projects to other rows: what another version stored is built again. */
export const ROW_VERSION = 2;

/** What is kept of every session for lists. Plain data, and bounded. */
export interface SessionRow {
  readonly id: string;
  readonly owner: string;
  readonly name: string;
  readonly status: SessionStatus;
  readonly provider: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly parent: string | null;
  /** Of its first event, in decimal: the order of lists. */
  readonly createdPosition: string;
  /** Of the last event that is in here. */
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly lastActivityAt: number;
  readonly endedAt: number | null;
  readonly sandbox: RowSandbox | null;
  readonly pending: { readonly epoch: number; readonly provider: string } | null;
  /** Somebody asked for a sandbox that is not requested from a runner yet. */
  readonly waking: boolean;
  readonly ports: readonly number[];
  readonly execs: ExecCounts;
  /** Those that have not ended: true once started. */
  readonly openExecs: Readonly<Record<string, boolean>>;
  readonly timings: Timings;
  readonly usage: SessionUsage;
}

export interface RowSandbox {
  readonly epoch: number;
  readonly runnerId: string;
  readonly startedAt: number;
}

export const NO_USAGE: SessionUsage = {
  cpuMs: 0,
  peakMemoryBytes: 0,
  readBytes: 0,
  writtenBytes: 0,
  outputBytes: 0,
  sandboxMs: 0,
};

/** It holds a sandbox or is about to. */
export const isLive = ({ status, sandbox, pending, waking }: SessionRow): boolean =>
  status === 'starting' || sandbox !== null || pending !== null || waking;

export const summaryOf = (row: SessionRow): SessionSummary => ({
  id: row.id,
  owner: row.owner,
  name: row.name,
  status: row.status,
  provider: row.provider,
  labels: row.labels,
  createdAt: row.createdAt,
  updatedAt: row.updatedAt,
  lastActivityAt: row.lastActivityAt,
  endedAt: row.endedAt,
  ports: row.ports,
  runningExecs: Object.values(row.openExecs).filter((started) => started).length,
  execs: row.execs,
  timings: row.timings,
  usage: row.usage,
});
