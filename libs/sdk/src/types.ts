/** How things look in the API's answers. Times are ISO 8601 in UTC. */

export type SessionStatus =
  | 'starting'
  | 'running'
  | 'suspended'
  | 'released'
  | 'lost'
  | 'stopping'
  | 'stopped'
  | 'failed'
  | 'deleted';

/** What lists show of a session. */
export interface SessionSummary {
  readonly id: string;
  readonly name: string;
  readonly status: SessionStatus;
  readonly provider: string;
  /** Whether the provider is only acted out, on a machine of one's own. */
  readonly emulated: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly lastActivityAt: string;
  readonly endedAt: string | null;
  readonly ports: readonly number[];
  readonly runningExecs: number;
  readonly execs: {
    readonly issued: number;
    readonly succeeded: number;
    readonly failed: number;
    readonly unknown: number;
  };
  /** How far its next sandbox has come; null when it waits for none. */
  readonly making: SandboxMaking | null;
}

/** A sandbox that is not there yet, as whoever makes it last said. */
export interface SandboxMaking {
  readonly stage: 'building' | 'queued' | 'starting';
  readonly since: string;
  /** In the provider's words, such as the GPU that it waits for; null when there is nothing to say. */
  readonly detail: string | null;
}

/** A session as of its last event. */
export interface SessionInfo {
  readonly id: string;
  readonly name: string;
  readonly owner: string;
  readonly status: SessionStatus;
  /** What is under way, such as `suspend`; null when nothing is. */
  readonly operation: string | null;
  /** Why it failed, or what failed last. */
  readonly message: string | null;
  readonly provider: string;
  readonly sandbox: {
    readonly epoch: number;
    readonly instance: string;
    readonly runnerId: string;
    readonly startedAt: string;
  } | null;
  readonly ports: readonly { readonly port: number; readonly address: string }[];
  readonly execs: { readonly total: number; readonly open: number };
  readonly createdAt: string;
  readonly lastActivityAt: string;
  readonly endedAt: string | null;
  /** How far the sandbox has come that it waits for; only where one session is asked for. */
  readonly making?: SandboxMaking | null;
  /** Only where one session is asked for. */
  readonly usage?: SessionUsage;
  readonly revision: number;
  readonly position: string;
  readonly [other: string]: unknown;
}

export type Stream = 'stdout' | 'stderr' | 'pty';

/** How a command ended, as its sandbox reported it; `unknown` when nobody can tell, and why. */
export type CommandExit =
  | { readonly kind: 'exited'; readonly code: number }
  | { readonly kind: 'signalled'; readonly signal: string }
  | { readonly kind: 'not_started'; readonly reason: string; readonly message: string | null }
  | { readonly kind: 'unknown'; readonly reason: string };

/** A command of a session, running or ended. */
export interface CommandInfo {
  readonly id: string;
  readonly sessionId: string;
  readonly status: 'queued' | 'dispatched' | 'running' | 'exited' | 'unknown';
  /** The beginning of its command line. */
  readonly summary: string;
  readonly purpose: string;
  readonly pty: boolean;
  readonly pid: number | null;
  readonly cancelRequested: boolean;
  /** Null while it runs. */
  readonly exit: CommandExit | null;
  /** How much it wrote, once it has ended. */
  readonly sizes: Readonly<Record<Stream, number>> | null;
  readonly issuedAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly [other: string]: unknown;
}

/** One event of a session's history. */
export interface HistoryEvent {
  readonly revision: number;
  readonly position: string;
  readonly type: string;
  readonly version: number | null;
  readonly recordedAt: string;
  readonly principal: string | null;
  readonly correlationId: string | null;
  readonly traceparent: string | null;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What is at a path of a sandbox. */
export interface FileInfo {
  readonly name: string;
  /** The exact bytes of a name that is not UTF-8. */
  readonly nameBase64: string | null;
  /** `file`, `directory`, `link` and others that a sandbox may have. */
  readonly type: string;
  /** In octal, such as `0644`. */
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly modifiedAt: string;
  readonly linkTarget: string | null;
}

/** A port of a session. */
export interface PortInfo {
  readonly port: number;
  /** Whether anything listens on it. */
  readonly open: boolean;
  readonly address: string | null;
  /** Whether everyone who has the URL may look. */
  readonly public: boolean;
  readonly wake: boolean;
  /** Whether the provider keeps it for itself. */
  readonly reserved: boolean;
  /** Null where the gateway has no previews. */
  readonly url: string | null;
  readonly openedAt: string | null;
}

/** What lets somebody look at a private port. */
export interface PreviewToken {
  readonly port: number;
  readonly token: string;
  /** Null where the gateway has no previews. */
  readonly url: string | null;
  /** The URL with the token in it: answered once with a cookie and the clean URL. */
  readonly tokenUrl: string | null;
  readonly expiresAt: string;
}

/** What a sandbox uses, as it tells itself; null for what it cannot tell. */
export interface SessionStats {
  readonly sessionId: string;
  readonly epoch: number;
  readonly at: string;
  readonly uptimeMs: number | null;
  readonly runningExecs: number | null;
  /** Since it was started. */
  readonly cpu: { readonly usedMs: number | null };
  readonly memory: {
    readonly bytes: number | null;
    readonly cacheBytes: number | null;
    readonly peakBytes: number | null;
    readonly limitBytes: number | null;
    /** Processes that were killed for want of it. */
    readonly kills: number | null;
  };
  readonly processes: { readonly count: number | null; readonly limit: number | null };
  readonly disk: { readonly usedBytes: number | null; readonly totalBytes: number | null };
  readonly usage: SessionUsage;
}

/** What a session has used so far: of its execs that have ended, and of its sandboxes. */
export interface SessionUsage {
  readonly cpuSeconds: number;
  /** Of the memory that its sandboxes were given. */
  readonly memoryGibSeconds: number;
  readonly sandboxSeconds: number;
  readonly peakMemoryBytes: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly outputBytes: number;
}
