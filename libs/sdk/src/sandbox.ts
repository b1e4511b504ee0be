import { Commands } from './commands';
import { VmuxError } from './errors';
import { Files } from './files';
import { type HistoryOptions, historyEvents } from './history';
import { type LogItem, type LogOptions, logItems, logSize } from './logs';
import { Ports } from './ports';
import { SessionTime } from './time';
import type {
  HistoryEvent,
  SessionInfo,
  SessionStats,
  SessionStatus,
  SessionSummary,
} from './types';
import { type CallOptions, type ChangeOptions, Vmux } from './vmux';

/** Which gateway; the one that VMUX_URL and VMUX_API_KEY name without it. */
export interface Through {
  readonly vmux?: Vmux;
}

export interface CreateOptions extends ChangeOptions, Through {
  /** Lower case letters, digits and single dashes, at most 52; the id adds a suffix. */
  readonly name?: string;
  /** Where the client runs: its last part is the name when none is given. */
  readonly directory?: string;
  readonly provider?: string;
  readonly image?: string;
  /** Lines for a shell that are run on top of the image, once for all sessions that ask for the same. */
  readonly build?: readonly string[];
  /** Sealed before they are stored. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly resources?: {
    readonly cpus?: number;
    readonly memoryMiB?: number;
    readonly diskMiB?: number;
    readonly gpu?: string;
  };
  readonly ports?: readonly number[];
  /** Whether it may reach the network. */
  readonly egress?: boolean;
  /** The SHA-256 of a bundle that was uploaded. */
  readonly bundle?: string;
  readonly setup?: 'auto' | 'none';
  readonly policy?: {
    /** It rests when nothing has happened for so long; 10 minutes without it. */
    readonly idleTimeoutMs?: number;
    /** It does not rest before, up to 168 h. */
    readonly keepMs?: number;
    /** It is stopped then, after a warning. */
    readonly maxRuntimeMs?: number;
    /** Keeps its files by itself, from 10 s on. */
    readonly checkpointEveryMs?: number;
    /** When it comes back from its last checkpoint after its sandbox was lost; `on_demand` without it. */
    readonly rehydrate?: RehydratePolicy;
    /** How long its runner may be silent before its sandbox counts as lost; never without it. */
    readonly lostAfterMs?: number;
  };
}

/** `on_demand` is with the next command or visitor. */
export type RehydratePolicy = 'on_demand' | 'immediately' | 'never';

export interface ListOptions extends CallOptions, Through {
  readonly status?: readonly SessionStatus[];
  readonly name?: string;
  readonly provider?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

export interface StopOptions extends ChangeOptions {
  /** How long its processes have to end by themselves. */
  readonly graceMs?: number;
  /** Do not wait for a runner that cannot be reached. */
  readonly force?: boolean;
}

/** A session: one handle for commands, output and history, whatever sandbox is underneath. */
export class Sandbox {
  readonly commands: Commands;
  readonly files: Files;
  readonly ports: Ports;
  /** Checkpoints, forks, moves and rest. */
  readonly time: SessionTime;

  private constructor(
    private readonly vmux: Vmux,
    readonly id: string,
  ) {
    this.commands = new Commands(vmux, id);
    this.ports = new Ports(vmux, id);
    this.time = new SessionTime(vmux, id);
    let found: Promise<string> | undefined;
    this.files = new Files(vmux, id, () => {
      found ??= this.info().then(workingDirectoryOf);
      return found;
    });
  }

  /** Creates a session. Its sandbox is started meanwhile; commands can be given at once. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { vmux = Vmux.fromEnvironment(), signal, idempotencyKey, ...body } = options;
    const request = { body, signal, idempotencyKey };
    const { id } = await vmux.call<SessionInfo>('POST', '/v1/sessions', request);
    return new Sandbox(vmux, id);
  }

  /**
   * Throws what `create` would be refused with, as far as that is known before; makes nothing. A server that is too old
   * to be asked answers `not_found`.
   */
  static async check(options: CreateOptions = {}): Promise<{
    readonly provider: string;
    readonly emulated: boolean;
  }> {
    const { vmux = Vmux.fromEnvironment(), signal, idempotencyKey, ...body } = options;
    return vmux.call('POST', '/v1/sessions/check', { body, signal, idempotencyKey });
  }

  /** A session that exists, from any machine. */
  static async connect(id: string, options: CallOptions & Through = {}): Promise<Sandbox> {
    const { vmux = Vmux.fromEnvironment(), signal } = options;
    const sandbox = new Sandbox(vmux, id);
    await sandbox.info({ signal });
    return sandbox;
  }

  /** Your sessions, the newest first. Lists follow the histories with a small delay. */
  static async *list(options: ListOptions = {}): AsyncGenerator<SessionSummary> {
    const { vmux = Vmux.fromEnvironment(), signal, status, name, provider, labels } = options;
    const label = Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`);
    for (let cursor: string | undefined; ; ) {
      const page: { sessions: SessionSummary[]; cursor: string | null } = await vmux.call(
        'GET',
        '/v1/sessions',
        {
          query: {
            ...{ cursor, name, provider, limit: 200 },
            status: status?.join(','),
            label: label.length === 0 ? undefined : label.join(','),
          },
          signal,
        },
      );
      yield* page.sessions;
      if (page.cursor === null) return;
      cursor = page.cursor;
    }
  }

  /** Ends a session’s sandbox without grace. Its logs and history stay. */
  static async kill(id: string, options: ChangeOptions & Through = {}): Promise<void> {
    const { vmux = Vmux.fromEnvironment(), ...rest } = options;
    await new Sandbox(vmux, id).kill(rest);
  }

  info({ signal }: CallOptions = {}): Promise<SessionInfo> {
    return this.vmux.call('GET', this.path, { signal });
  }

  /** The output of all its commands, from any offset, also after its sandbox is gone. */
  logs(options: LogOptions = {}): AsyncGenerator<LogItem> {
    return logItems(this.vmux, this.id, options);
  }

  /** How much merged output there is so far. */
  logSize({ signal }: CallOptions = {}): Promise<number> {
    return logSize(this.vmux, this.id, { signal });
  }

  /** Everything that happened to it, from any revision. */
  history(options: HistoryOptions = {}): AsyncGenerator<HistoryEvent> {
    return historyEvents(this.vmux, this.id, options);
  }

  /** The name under which a port is reached from outside, such as `8000-web-1a2b.localhost:7878`. */
  async getHost(port: number, options: CallOptions = {}): Promise<string> {
    const { url } = await this.ports.token(port, options);
    if (url !== null) return new URL(url).host;
    throw new VmuxError(
      'not_supported',
      'this gateway has no previews',
      'use ports.connect, or set VMUX_PREVIEW_URL of the gateway',
    );
  }

  /** What its sandbox uses now. One that rests is not woken: that is `not_running`. */
  stats({ signal }: CallOptions = {}): Promise<SessionStats> {
    return this.vmux.call('GET', `${this.path}/stats`, { signal });
  }

  /** Ends its sandbox. Answered once that is recorded; `untilEnded` waits. */
  async stop({ graceMs, force, ...options }: StopOptions = {}): Promise<void> {
    const query = { grace: graceMs === undefined ? undefined : `${graceMs}ms`, force };
    await this.vmux.call('POST', `${this.path}/stop`, { ...options, query });
  }

  /** Ends its sandbox without grace. */
  kill(options: ChangeOptions = {}): Promise<void> {
    return this.stop({ ...options, graceMs: 0 });
  }

  /** Removes its logs, its history and its key; with `force` also while it is live. */
  async delete({ force, ...options }: ChangeOptions & { force?: boolean } = {}): Promise<void> {
    await this.vmux.call('DELETE', this.path, { ...options, query: { force } });
  }

  /** Freezes its processes; the next command wakes it. */
  async suspend(options: ChangeOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/suspend`, options);
  }

  async resume(options: ChangeOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/resume`, options);
  }

  /** Waits until it has stopped, failed or been deleted. */
  async untilEnded({ signal }: CallOptions = {}): Promise<'stopped' | 'failed' | 'deleted'> {
    for await (const { type } of this.history({ follow: true, signal })) {
      if (type === 'SessionStopped') return 'stopped';
      if (type === 'SessionFailed') return 'failed';
      if (type === 'SessionDeleted') return 'deleted';
    }
    return 'deleted';
  }

  private get path(): string {
    return `/v1/sessions/${encodeURIComponent(this.id)}`;
  }
}

function workingDirectoryOf({ spec }: SessionInfo): string {
  const cwd = typeof spec === 'object' && spec !== null && 'cwd' in spec ? spec.cwd : null;
  return typeof cwd === 'string' ? cwd : '/workspace';
}
