import type { Duplex } from 'node:stream';
import { PipeBroken, type SandboxError } from './errors';
import {
  type ExecState,
  type Figures,
  type Hello,
  readExec,
  readFigures,
  readOk,
  readStdinAck,
} from './supervisor-answers';
import { type ConnectOptions, SupervisorConnection } from './supervisor-connection';
import { SupervisorFiles } from './supervisor-files';
import { ask, outOfPlace, WINDOW_BYTES } from './supervisor-requests';
import { dialPort, type ReadItem, readOutputFrom } from './supervisor-streams';
import { SupervisorTrees } from './supervisor-trees';
import { type PortItem, type WatchItem, watchExecs, watchPorts } from './supervisor-watch';
import { asBuffer, BodyWriter, FRAME, type Frame, MAX_DATA } from './wire';

export interface StartExec {
  readonly execId: string;
  readonly argv: readonly string[];
  /** Exactly this environment, nothing added. */
  readonly env?: Readonly<Record<string, string>>;
  /** `/` without it. */
  readonly cwd?: string;
  /** `name`, `uid`, `name:group` or `uid:gid` of the sandbox; the supervisor's own without it. */
  readonly user?: string;
  readonly pty?: { readonly cols: number; readonly rows: number };
  /** Without it stdin is /dev/null. */
  readonly stdin?: boolean;
}

export interface ReadOptions {
  readonly offset?: number;
  /** Go on until the exec has ended; without it the end of what there is now is the end. */
  readonly follow?: boolean;
  /** `merged` numbers all output in the order it was read. */
  readonly stream?: 'merged' | 'stdout' | 'stderr';
  /** Tell with the end what the exec used, where the supervisor can; see `usage`. */
  readonly usage?: boolean;
  readonly signal?: AbortSignal;
}

export interface StdinWrite {
  readonly execId: string;
  /** Unique per writer and growing with time; a terminal's older writers are refused. */
  readonly writer: number;
  /** Of the first byte, among this writer's. */
  readonly offset: number;
  readonly data: Uint8Array;
  /** The input ends after these bytes. */
  readonly end?: boolean;
}

export interface StdinTaken {
  /** Everything below it has been taken, once. The end of the input counts as one. */
  readonly next: number;
  readonly atEnd: boolean;
  /** Resolves when there is room again; undefined when everything was taken. */
  readonly ready: Promise<void> | undefined;
}

interface Call {
  readonly signal?: AbortSignal;
}

const SPEAK_EVERY_MS = 60_000;

/**
 * What a sandbox can be asked, over any byte pipe. The protocol is docs/supervisor-protocol.md. Faults are
 * `SupervisorRefused` (this request), `PipeBroken` (open another pipe) and `ProtocolViolation` (nothing
 * from there is trusted any more). Start is idempotent by exec id; every read can go on at any offset.
 */
export class SupervisorClient {
  readonly files: SupervisorFiles;
  readonly trees: SupervisorTrees;

  private constructor(private readonly connection: SupervisorConnection) {
    this.files = new SupervisorFiles(connection);
    this.trees = new SupervisorTrees(connection);
  }

  static async connect(pipe: Duplex, options: ConnectOptions): Promise<SupervisorClient> {
    const client = new SupervisorClient(await SupervisorConnection.open(pipe, options));
    client.#speakEvery(options.speakEveryMs ?? SPEAK_EVERY_MS);
    return client;
  }

  /** Whoever says nothing is taken for gone. One question at a time: what stands still answers none. */
  #speakEvery(everyMs: number): void {
    let isAsking = false;
    const timer = setInterval(() => {
      if (isAsking) return;
      isAsking = true;
      const answered = () => {
        isAsking = false;
      };
      this.ping().then(answered, answered);
    }, everyMs).unref();
    this.ended.then(() => clearInterval(timer));
  }

  get hello(): Hello {
    return this.connection.hello;
  }

  /** Resolves with the reason when the pipe has ended, also after `close`. */
  get ended(): Promise<SandboxError> {
    return this.connection.ended;
  }

  /** Closes the pipe. What runs in the sandbox runs on. */
  close(): void {
    this.connection.break(new PipeBroken('closed by this end'));
  }

  /** Resolves once the program runs or is known not to; a repeat answers what is recorded. */
  start(exec: StartExec, { signal }: Call = {}): Promise<ExecState> {
    const env = Object.entries(exec.env ?? {});
    const body = new BodyWriter()
      .bytes(exec.execId)
      .u32((exec.pty ? 1 : 0) | (exec.stdin ? 2 : 0))
      .u16(exec.pty?.cols ?? 0)
      .u16(exec.pty?.rows ?? 0)
      .bytes(exec.user ?? '')
      .bytes(exec.cwd ?? '')
      .u16(exec.argv.length);
    for (const argument of exec.argv) body.bytes(argument);
    body.u16(env.length);
    for (const [name, value] of env) body.bytes(`${name}=${value}`);
    return this.#askExec('START', exec.execId, (id) => body.frame(FRAME.start, id), signal);
  }

  /** TERM, then KILL after the grace. An exec that was never started will never start. */
  cancel(execId: string, graceMs: number, { signal }: Call = {}): Promise<ExecState> {
    const body = new BodyWriter().bytes(execId).u32(graceMs);
    return this.#askExec('CANCEL', execId, (id) => body.frame(FRAME.cancel, id), signal);
  }

  state(execId: string, { signal }: Call = {}): Promise<ExecState> {
    const body = new BodyWriter().bytes(execId);
    return this.#askExec('STATE', execId, (id) => body.frame(FRAME.state, id), signal);
  }

  /** `number` is the signal's. */
  async signal(execId: string, number: number, { signal }: Call = {}): Promise<void> {
    await this.#askOk('SIGNAL', FRAME.signal, new BodyWriter().bytes(execId).u32(number), signal);
  }

  /** Every exec that is not released, `caughtUp`, then each change; states may be skipped, never the last. */
  watch({ signal }: Call = {}): AsyncGenerator<WatchItem> {
    return watchExecs(this.connection, true, signal);
  }

  async states({ signal }: Call = {}): Promise<readonly ExecState[]> {
    const execs: ExecState[] = [];
    for await (const item of watchExecs(this.connection, false, signal))
      if (item.kind === 'exec') execs.push(item.exec);
    return execs;
  }

  /** Output from an offset on; the last item is `end`. Reads no faster than it is consumed. */
  read(execId: string, options: ReadOptions = {}): AsyncGenerator<ReadItem> {
    const { offset = 0, follow = true, stream = 'merged', signal } = options;
    const usage = follow && options.usage === true && this.hello.readsUsage;
    const streamNumber = { merged: 0, stdout: 1, stderr: 2 }[stream];
    const body = new BodyWriter()
      .bytes(execId)
      .u8(streamNumber)
      .u8(usage ? 2 : follow ? 1 : 0)
      .u64(offset)
      .u32(WINDOW_BYTES);
    const from = { offset, merged: stream === 'merged', usage };
    return readOutputFrom(
      this.connection,
      execId,
      from,
      (id) => body.frame(FRAME.read, id),
      signal,
    );
  }

  /** Everything below the merged offset is durable elsewhere: its room may be used again. */
  async acknowledge(execId: string, mergedOffset: number, { signal }: Call = {}): Promise<void> {
    await this.#askOk('ACK', FRAME.ack, new BodyWriter().bytes(execId).u64(mergedOffset), signal);
  }

  /** Drops an ended exec's output; its recorded state stays. */
  async release(execId: string, { signal }: Call = {}): Promise<void> {
    await this.#askOk('RELEASE', FRAME.release, new BodyWriter().bytes(execId), signal);
  }

  /** Applied at most once: a repeat of {writer, offset} is dropped. At most 64 KiB at a time. */
  stdin(write: StdinWrite, { signal }: Call = {}): Promise<StdinTaken> {
    const data = asBuffer(write.data);
    if (data.length > MAX_DATA) throw new RangeError(`stdin takes ${MAX_DATA} bytes at a time`);
    const body = new BodyWriter()
      .bytes(write.execId)
      .u64(write.writer)
      .u64(write.offset)
      .u8(write.end ? 1 : 0)
      .bytes(data);
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      let becomesReady: () => void = () => undefined;
      let full = false;
      let fail: (fault: SandboxError) => void = reject;
      const settle = () => signal?.removeEventListener('abort', abort);
      const onFrame = (frame: Frame): boolean => {
        if (full && frame.type === FRAME.stdinReady) {
          becomesReady();
          settle();
          return true;
        }
        if (full || frame.type !== FRAME.stdinAck) throw outOfPlace(frame, 'STDIN');
        const taken = readStdinAck(frame);
        full = taken.full;
        const ready = full
          ? new Promise<void>((ok, failed) => {
              becomesReady = ok;
              fail = failed;
            })
          : undefined;
        ready?.catch(() => undefined);
        resolve({ next: taken.next, atEnd: taken.atEnd, ready });
        if (!full) settle();
        return !full;
      };
      const id = this.connection.request(
        {
          onFrame,
          onFault: (fault) => {
            settle();
            fail(fault);
          },
        },
        (number) => body.frame(FRAME.stdin, number),
      );
      const abort = () => {
        this.connection.abandon(id);
        fail(signal?.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  async resize(execId: string, cols: number, rows: number, { signal }: Call = {}): Promise<void> {
    const body = new BodyWriter().bytes(execId).u16(cols).u16(rows);
    await this.#askOk('RESIZE', FRAME.resize, body, signal);
  }

  /** Listening ports, `caughtUp`, then each opening and closing. */
  ports({ signal }: Call = {}): AsyncGenerator<PortItem> {
    return watchPorts(this.connection, true, signal);
  }

  /** A byte tunnel to a port on the sandbox's own loopback. */
  dial(port: number, { signal }: Call = {}): Promise<Duplex> {
    return dialPort(this.connection, port, signal);
  }

  figures({ signal }: Call = {}): Promise<Figures> {
    const frameOf = (id: number) => new BodyWriter().frame(FRAME.figures, id);
    const answers = { [FRAME.figuresAnswer]: readFigures };
    return ask(this.connection, 'FIGURES', frameOf, answers, signal);
  }

  /** What an exec that has ended used; nothing while it runs, and of a supervisor that does not know. */
  async usage(execId: string, { signal }: Call = {}): Promise<Figures> {
    if (!this.hello.usage) return {};
    const body = new BodyWriter().bytes(execId);
    const answers = { [FRAME.figuresAnswer]: readFigures };
    return ask(this.connection, 'USAGE', (id) => body.frame(FRAME.usage, id), answers, signal);
  }

  /** Ends every exec (TERM, then KILL after the grace); output can still be read. */
  async stop(graceMs: number, { signal }: Call = {}): Promise<void> {
    await this.#askOk('STOP', FRAME.stop, new BodyWriter().u32(graceMs), signal);
  }

  /** Ends the supervisor and with it the sandbox. */
  async quit({ signal }: Call = {}): Promise<void> {
    await this.#askOk('QUIT', FRAME.quit, new BodyWriter(), signal);
  }

  /** Resolves when the supervisor has answered. */
  async ping({ signal }: Call = {}): Promise<void> {
    const frameOf = (id: number) => new BodyWriter().bytes('').frame(FRAME.ping, id);
    await ask(this.connection, 'PING', frameOf, { [FRAME.pong]: () => undefined }, signal);
  }

  #askExec(
    name: string,
    execId: string,
    frameOf: (id: number) => Buffer,
    signal: AbortSignal | undefined,
  ): Promise<ExecState> {
    const answers = { [FRAME.exec]: (frame: Frame) => readExec(frame, execId) };
    return ask(this.connection, name, frameOf, answers, signal);
  }

  #askOk(
    name: string,
    type: number,
    body: BodyWriter,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const frameOf = (id: number) => body.frame(type, id);
    return ask(this.connection, name, frameOf, { [FRAME.ok]: readOk }, signal);
  }
}
