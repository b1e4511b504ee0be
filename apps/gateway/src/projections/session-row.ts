import type { Stage } from '@vmux/events';
import type { SessionSummary } from '../application/session-index';
import type { SessionStatus } from '../application/session-view';

/** Raised whenever the same history projects to other rows: what another version stored is built again. */
export const ROW_VERSION = 1;

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
  readonly usage: RowUsage;
}

export interface RowSandbox {
  readonly epoch: number;
  readonly runnerId: string;
  readonly startedAt: number;
}

export interface ExecCounts {
  readonly issued: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly unknown: number;
}

export interface Timings {
  /** When the newest sandbox was asked for and when it was there. */
  readonly requestedAt: number | null;
  readonly startedAt: number | null;
  /** When the newest sandbox first reached each. */
  readonly stages: Readonly<Partial<Record<Stage, number>>>;
}

export interface RowUsage {
  readonly cpuMs: number;
  readonly peakMemoryBytes: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly outputBytes: number;
  /** Of the sandboxes that are gone; the present one runs since `sandbox.startedAt`. */
  readonly sandboxMs: number;
}

export const NO_USAGE: RowUsage = {
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
  lastActivityAt: row.lastActivityAt,
  endedAt: row.endedAt,
  ports: row.ports,
  runningExecs: Object.values(row.openExecs).filter((started) => started).length,
});
