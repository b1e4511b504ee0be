import { historyEvents } from './history';
import { Input } from './input';
import { type LogItem, type LogOptions, logItems, logSize } from './logs';
import { type AttachOptions, Terminal } from './terminal';
import type { CommandExit, CommandInfo, Stream } from './types';
import type { ByteSource, CallOptions, ChangeOptions, Vmux } from './vmux';

export interface StartOptions extends ChangeOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  /** Ends the command this long after it started: SIGTERM, then SIGKILL. */
  readonly timeoutMs?: number;
  /** Gives it a terminal of this size: one output, `pty`, and input that is typed. */
  readonly pty?: { readonly cols: number; readonly rows: number };
  /** Whether it will be given input; without it its input is empty. */
  readonly takesInput?: boolean;
  readonly purpose?: 'user' | 'setup' | 'shell' | 'service';
}

export interface RunOptions extends Omit<StartOptions, 'takesInput'> {
  /** Its input, to the end. */
  readonly stdin?: string | Uint8Array | ByteSource;
  /** Bytes as they come, exactly as written. A promise holds back what follows. */
  readonly onStdout?: (bytes: Buffer) => void | Promise<void>;
  readonly onStderr?: (bytes: Buffer) => void | Promise<void>;
  /** How much of each stream the result holds: the first 10 MiB without it. */
  readonly maxOutputBytes?: number;
}

export interface CommandResult {
  readonly id: string;
  readonly exit: CommandExit;
  /** Null when it did not exit by itself, or nobody can tell. */
  readonly exitCode: number | null;
  /** Whether it was ended because its time was over. */
  readonly timedOut: boolean;
  readonly stdout: string;
  readonly stderr: string;
  /** Whether more was written than the result holds; `logs` has all of it. */
  readonly truncated: boolean;
}

const defaultMaxOutputBytes = 10 * 1024 * 1024;
const longestWait = '60s';

/** The commands of one session. A string is a line for the shell, a list is run as it is. */
export class Commands {
  constructor(
    private readonly vmux: Vmux,
    private readonly sessionId: string,
  ) {}

  /**
   * Runs a command and waits until it has ended. An exit code other than 0 is a result, not an error.
   * Aborting stops the waiting; the command goes on and is found in `list`.
   */
  async run(command: string | readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    const { stdin, ...rest } = options;
    const started = await this.start(command, { ...rest, takesInput: stdin !== undefined });
    if (stdin === undefined) return started.wait(options);
    const stop = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
    // A fault of the input ends the waiting with it; aborting ends both.
    started
      .input()
      .giveAll(stdin, { signal })
      .catch((fault) => stop.abort(fault));
    try {
      return await started.wait({ ...options, signal });
    } finally {
      stop.abort();
    }
  }

  /** Starts a command in the background: answered once it is recorded and will be run. */
  async start(command: string | readonly string[], options: StartOptions = {}): Promise<Command> {
    const { env, cwd, user, timeoutMs, pty, takesInput, purpose } = options;
    const { signal, idempotencyKey } = options;
    const line = typeof command === 'string' ? { command } : { argv: command };
    const info = await this.vmux.call<CommandInfo>('POST', this.path(), {
      body: { ...line, env, cwd, user, timeoutMs, pty, stdin: takesInput || undefined, purpose },
      signal,
      idempotencyKey,
    });
    return new Command(this.vmux, this.sessionId, info.id);
  }

  /** The newest first. */
  async list({ signal }: CallOptions = {}): Promise<readonly CommandInfo[]> {
    const all: CommandInfo[] = [];
    for (let cursor: number | undefined; ; ) {
      const page: { execs: CommandInfo[]; cursor: number | null } = await this.vmux.call(
        'GET',
        this.path(),
        { query: { limit: 500, cursor }, signal },
      );
      all.push(...page.execs);
      if (page.cursor === null) return all;
      cursor = page.cursor;
    }
  }

  /** The session's shell, on a terminal: the one that runs, or a new one. Everybody gets the same. */
  async shell({
    cols = 80,
    rows = 24,
    ...options
  }: ChangeOptions & { readonly cols?: number; readonly rows?: number } = {}): Promise<Command> {
    const path = `/v1/sessions/${encodeURIComponent(this.sessionId)}/shell`;
    const request = { ...options, body: { cols, rows } };
    const { id } = await this.vmux.call<CommandInfo>('POST', path, request);
    return new Command(this.vmux, this.sessionId, id);
  }

  /** A command by its id, also one that has ended. Asks nobody: a wrong id is noticed at the first call. */
  get(id: string): Command {
    return new Command(this.vmux, this.sessionId, id);
  }

  private path(): string {
    return `/v1/sessions/${encodeURIComponent(this.sessionId)}/execs`;
  }
}

/** One command, in the background or ended. */
export class Command {
  private readonly path: string;

  constructor(
    private readonly vmux: Vmux,
    private readonly sessionId: string,
    readonly id: string,
  ) {
    this.path = `/v1/sessions/${encodeURIComponent(sessionId)}/execs/${encodeURIComponent(id)}`;
  }

  info({ signal }: CallOptions = {}): Promise<CommandInfo> {
    return this.vmux.call('GET', this.path, { signal });
  }

  /** A writer of its input. Several may write: each one's bytes stay in their order. */
  input(): Input {
    return new Input(this.vmux, this.path);
  }

  /** Attaches to its terminal. */
  attach(options: AttachOptions = {}): Terminal {
    return new Terminal(this.vmux, `${this.path}/attach`, options);
  }

  /** Sets the size of its terminal. */
  async resize(cols: number, rows: number, { signal }: CallOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/resize`, { body: { cols, rows }, signal });
  }

  /** Its output, from any offset, while it runs and afterwards. */
  logs(options: Omit<LogOptions, 'command'> = {}): AsyncGenerator<LogItem> {
    return logItems(this.vmux, this.sessionId, { ...options, command: this.id });
  }

  /** How much of one of its streams there is so far. */
  logSize(stream: Stream, { signal }: CallOptions = {}): Promise<number> {
    return logSize(this.vmux, this.sessionId, { command: this.id, stream, signal });
  }

  /** Waits until it has ended, with all that it wrote since it began. */
  async wait(
    options: Pick<RunOptions, 'onStdout' | 'onStderr' | 'maxOutputBytes' | 'signal'> = {},
  ): Promise<CommandResult> {
    const { onStdout, onStderr, maxOutputBytes = defaultMaxOutputBytes, signal } = options;
    const stdout = new Kept(maxOutputBytes);
    const stderr = new Kept(maxOutputBytes);
    let isWhole = true;
    for await (const item of this.logs({ follow: true, signal })) {
      if (item.kind === 'gap') isWhole = false;
      if (item.kind !== 'bytes') continue;
      const isError = item.stream === 'stderr';
      (isError ? stderr : stdout).add(item.bytes);
      await (isError ? onStderr : onStdout)?.(item.bytes);
    }
    const { exit, timedOut } = await this.ended({ signal });
    return {
      id: this.id,
      exit,
      exitCode: exit.kind === 'exited' ? exit.code : null,
      timedOut,
      stdout: stdout.text(),
      stderr: stderr.text(),
      truncated: !isWhole || stdout.isCut || stderr.isCut,
    };
  }

  /** Waits until it has ended, without its output. */
  async ended({ signal }: CallOptions = {}): Promise<{ exit: CommandExit; timedOut: boolean }> {
    for (;;) {
      const query = { wait: longestWait, maxBytes: 0 };
      const info = await this.vmux.call<CommandInfo>('GET', `${this.path}/wait`, { query, signal });
      if (info.exit)
        return { exit: info.exit, timedOut: info.cancelRequested && (await this.ranOut(signal)) };
    }
  }

  /** SIGTERM, and SIGKILL when it has not ended after the grace. A command that never started never will. */
  async cancel({ graceMs, ...options }: ChangeOptions & { graceMs?: number } = {}): Promise<void> {
    const query = { grace: graceMs === undefined ? undefined : `${graceMs}ms` };
    await this.vmux.call('POST', `${this.path}/cancel`, { ...options, query });
  }

  /** Sends a signal such as `SIGINT`. */
  async signal(signal: string, options: ChangeOptions = {}): Promise<void> {
    await this.vmux.call('POST', `${this.path}/signal`, { ...options, body: { signal } });
  }

  /** Who asked for its end stands in the history alone. */
  private async ranOut(signal: AbortSignal | undefined): Promise<boolean> {
    for await (const { type, data } of historyEvents(this.vmux, this.sessionId, { signal }))
      if (type === 'ExecCancelRequested' && data.execId === this.id)
        return data.cause === 'timeout';
    return false;
  }
}

/** The first bytes of a stream. */
class Kept {
  private readonly pieces: Buffer[] = [];
  private left: number;
  isCut = false;

  constructor(maxBytes: number) {
    this.left = maxBytes;
  }

  add(bytes: Buffer): void {
    if (bytes.length > this.left) this.isCut = true;
    if (this.left === 0) return;
    const piece = bytes.subarray(0, this.left);
    this.left -= piece.length;
    this.pieces.push(piece);
  }

  text(): string {
    return Buffer.concat(this.pieces).toString('utf8');
  }
}
