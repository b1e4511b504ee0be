import type { Stage } from '@vmux/events';
import type { SessionStatus } from './session-view';

/** What lists show of a session. Eventual: a read model that follows the histories. */
export interface SessionSummary {
  readonly id: string;
  readonly owner: string;
  readonly name: string;
  readonly status: SessionStatus;
  readonly provider: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly lastActivityAt: number;
  readonly endedAt: number | null;
  readonly ports: readonly number[];
  readonly runningExecs: number;
  readonly execs: ExecCounts;
  readonly timings: Timings;
  readonly usage: SessionUsage;
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

/** Of the execs that have ended. */
export interface SessionUsage {
  readonly cpuMs: number;
  readonly peakMemoryBytes: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly outputBytes: number;
  /** Of the sandboxes that are gone. */
  readonly sandboxMs: number;
}

export interface SessionFilter {
  readonly owner: string;
  readonly statuses?: readonly SessionStatus[];
  readonly provider?: string;
  readonly name?: string;
  /** Every one of them, with exactly this value. */
  readonly labels?: Readonly<Record<string, string>>;
}

export interface SessionPage {
  readonly sessions: readonly SessionSummary[];
  /** For the next page; null on the last one. */
  readonly cursor: string | null;
}

/** The list does not show the position yet: ask again shortly. */
export class IndexBehind extends Error {
  readonly code = 'index_behind';
  constructor(readonly after: bigint) {
    super(`the list does not show position ${after} yet: ask again shortly`);
    this.name = 'IndexBehind';
  }
}

/** The list cannot be read or is being built. Nothing else is affected. */
export class IndexUnavailable extends Error {
  readonly code = 'index_unavailable';
  constructor(reason: string, options?: ErrorOptions) {
    super(`the session list is not available (${reason}): ask again shortly`, options);
    this.name = 'IndexUnavailable';
  }
}

/** Lists over all sessions, newest first. Both throw `IndexUnavailable`. */
export interface SessionIndex {
  /**
   * With `after` only once everything up to that position is in the list: waits a moment for it, then
   * throws `IndexBehind`.
   */
  list(
    filter: SessionFilter,
    page: { readonly cursor?: string; readonly limit: number; readonly after?: bigint },
  ): Promise<SessionPage>;

  /** Sessions of the owner that hold a sandbox or are about to, newest first. */
  live(owner: string): Promise<readonly SessionSummary[]>;
}
