import type { Outcome, ReportMessage, Stream } from '@vmux/events';
import type { ExecState, OutputItem } from '../supervisor-answers';
import { hasEnded } from '../supervisor-answers';
import type { SupervisorClient } from '../supervisor-client';
import type { ReadItem } from '../supervisor-streams';
import { outcomeOf, sizesOf, streamOf, usageOf } from './exec-facts';
import type { OutputPump, PumpedItem } from './output-pump';

/** How much of an exec's output may be on its way to the log at once. */
const windowBytes = 1024 * 1024;
/** An exec that ends sooner is told of once, by its end. */
const startedAfterMs = 25;

export interface FollowPort {
  readonly client: SupervisorClient;
  readonly pump: OutputPump;
  readonly signal: AbortSignal;
  /** Returns when the report is in the history. */
  report(report: ExecReport): Promise<void>;
  /** Why it was killed, if that is known, is in the history before its end. */
  explain(execId: string, outcome: Outcome, at: number): Promise<void>;
  /** A first of its sandbox; later ones are no news. */
  reach(stage: 'started' | 'first_output', at: number): void;
}

export type ExecReport = {
  [T in 'ExecStarted' | 'ExecExited']: Pick<
    Extract<ReportMessage, { readonly type: T }>,
    'type' | 'data' | 'at'
  >;
}['ExecStarted' | 'ExecExited'];

/** An exec whose end no supervisor saw: only the loss of its sandbox says so. */
export class OutcomeLost extends Error {
  constructor(readonly execId: string) {
    super(`${execId} was running when its supervisor ended`);
    this.name = 'OutcomeLost';
  }
}

/**
 * Carries one exec from where the log stands to its end: every byte first, then the exit, then the
 * supervisor may forget it. Stopped anywhere, it is begun again and repeats what was not acknowledged.
 */
export async function followExec(seen: ExecState, port: FollowPort): Promise<void> {
  const { client, signal } = port;
  if (seen.startedAtUs > 0) port.reach('started', Math.floor(seen.startedAtUs / 1000));
  const started = hasEnded(seen)
    ? undefined
    : setTimeout(() => void tellStarted(seen, port), startedAfterMs);
  try {
    const { exec: ended, usage } = await carryOutput(seen, port);
    clearTimeout(started);
    const outcome = outcomeOf(ended.outcome);
    if (!outcome) throw new OutcomeLost(seen.execId);
    const at = Math.floor(ended.endedAtUs / 1000);
    await port.explain(seen.execId, outcome, at);
    const used = usage ?? (await client.usage(seen.execId, { signal }));
    await port.report({
      type: 'ExecExited',
      at,
      data: { execId: seen.execId, outcome, sizes: sizesOf(ended), usage: usageOf(used) },
    });
    await client.release(seen.execId, { signal });
  } finally {
    clearTimeout(started);
  }
}

/** Carries everything that a dead sandbox's record holds; what was running when it died ends with it. */
export async function salvageExecs(
  client: SupervisorClient,
  pump: OutputPump,
  follow: (exec: ExecState, pump: OutputPump) => Promise<void>,
): Promise<void> {
  for (const exec of await client.states()) {
    if (exec.released) continue;
    try {
      await follow(exec, pump);
    } catch (error) {
      if (!(error instanceof OutcomeLost)) throw error;
    }
  }
}

async function tellStarted(exec: ExecState, port: FollowPort): Promise<void> {
  try {
    await port.report({
      type: 'ExecStarted',
      at: Math.floor(exec.startedAtUs / 1000),
      data: { execId: exec.execId, pid: exec.pid > 0 ? exec.pid : null },
    });
  } catch (error) {
    // The exit says everything that this would have said; what stops it stops that too.
    if (!port.signal.aborted && !(error instanceof Error)) throw error;
  }
}

async function carryOutput(seen: ExecState, port: FollowPort): Promise<ReadEnd> {
  const { client, pump, signal } = port;
  const inFlight = new Window(windowBytes);
  const options = { offset: seen.ackedOffset, usage: true, signal };
  for await (const item of client.read(seen.execId, options)) {
    if (item.kind === 'end') {
      await inFlight.empty();
      return item;
    }
    if (item.kind !== 'resize') port.reach('first_output', Math.floor(item.atUs / 1000));
    const pumped = pumpedItem(seen, item);
    await inFlight.add(
      pumped.item.kind === 'chunk' ? pumped.item.bytes.length : 0,
      pump.push(pumped),
    );
  }
  throw new Error('the supervisor ended a read without its last word');
}

function pumpedItem(exec: ExecState, item: OutputItem): PumpedItem {
  const mergedOffset = item.mergedOffset ?? 0;
  const at = Math.floor(item.atUs / 1000);
  const { execId } = exec;
  if (item.kind === 'resize') {
    const { cols, rows } = item;
    // Numbered by its time in microseconds: the same after a restart, and growing within an exec.
    const resize = {
      kind: 'resize' as const,
      execId,
      number: item.atUs,
      offset: mergedOffset,
      cols,
      rows,
      at,
    };
    return { item: resize, ackTo: mergedOffset };
  }
  const stream: Stream = streamOf(exec, item.kind);
  const chunk = {
    kind: 'chunk' as const,
    execId,
    stream,
    offset: item.streamOffset,
    bytes: item.data,
    at,
  };
  return { item: chunk, ackTo: mergedOffset + item.data.length };
}

type ReadEnd = Extract<ReadItem, { readonly kind: 'end' }>;

/** Bounds what is on its way; the first failure is thrown to whoever adds or waits next. */
class Window {
  private bytes = 0;
  private readonly open = new Set<Promise<void>>();
  private fault: { readonly error: unknown } | undefined;

  constructor(private readonly maxBytes: number) {}

  async add(bytes: number, done: Promise<void>): Promise<void> {
    this.bytes += bytes;
    const settled: Promise<void> = done
      .catch((error) => {
        this.fault ??= { error };
      })
      .finally(() => {
        this.bytes -= bytes;
        this.open.delete(settled);
      });
    this.open.add(settled);
    while (this.bytes > this.maxBytes && this.open.size > 0 && !this.fault)
      await Promise.race(this.open);
    this.throwFault();
  }

  async empty(): Promise<void> {
    while (this.open.size > 0) await Promise.all(this.open);
    this.throwFault();
  }

  private throwFault(): void {
    if (this.fault) throw this.fault.error;
  }
}
