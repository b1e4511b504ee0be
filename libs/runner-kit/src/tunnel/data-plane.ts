import { pipeline } from 'node:stream/promises';
import { timeLimit } from '@vmux/messaging';
import {
  parseRequest,
  type SandboxRef,
  type Serve,
  TunnelRefused,
  type TunnelRequest,
  type TunnelStream,
} from '@vmux/tunnel';
import { openInput } from '../exec-input';
import type { SupervisorClient } from '../supervisor-client';
import type { SandboxWorker } from '../work/sandbox-worker';
import type { Held, Log } from '../work/sandboxes';
import { serveFile } from './file-streams';
import { refusalOf } from './refusals';

type Worker = Pick<SandboxWorker, 'client' | 'dial' | 'report'>;
type Found = Pick<Held, 'id'> & { readonly worker: Worker };

/** The sandboxes that this runner has. */
export interface DataPlaneSandboxes {
  /** False while some may not have been found again yet. */
  readonly allKnown: boolean;
  find(sessionId: string, epoch: number): Found | undefined;
}

const CONNECT_WITHIN_MS = 10_000;
const ACTIVITY_EVERY_MS = 2_000;
const ANSWERED_WITHIN_MS: Readonly<Partial<Record<TunnelRequest['op'], number>>> = {
  resize: 15_000,
  figures: 15_000,
  stat: 15_000,
  mkdir: 15_000,
  // A tree may be large.
  remove: 300_000,
};

/**
 * Interactive bytes of the sandboxes that this runner has: each stream is bound to one of them, and to
 * its epoch and instance, when it is opened; it ends with the pipe to that sandbox.
 */
export function dataPlane(
  sandboxes: DataPlaneSandboxes,
  log: Log,
  deadlines = ANSWERED_WITHIN_MS,
): Serve {
  const activity = new Activity(log);
  return async (value, stream) => {
    const request = parseRequest(value);
    const { worker } = heldOf(sandboxes, request.sandbox);
    try {
      const client = await within(CONNECT_WITHIN_MS, worker.client(), stream.signal);
      activity.seen(worker, request.op);
      return await soon(deadlines[request.op], stream, (signal) =>
        serve(request, worker, client, stream, signal),
      );
    } catch (fault) {
      // Whoever gave the stream up is not told why it ended.
      if (stream.signal.aborted) throw new TunnelRefused('interrupted', 'the stream was given up');
      throw refusalOf(fault, aboutOf(request));
    } finally {
      activity.seen(worker, request.op);
    }
  };
}

function heldOf(sandboxes: DataPlaneSandboxes, { sessionId, epoch, instance }: SandboxRef): Found {
  const held = sandboxes.find(sessionId, epoch);
  if (held && held.id.instance === instance) return held;
  if (!held && !sandboxes.allKnown)
    throw new TunnelRefused('unavailable', 'the runner is still looking for its sandboxes');
  throw new TunnelRefused('stale_sandbox', 'this runner does not have that sandbox');
}

async function serve(
  request: TunnelRequest,
  worker: Worker,
  client: SupervisorClient,
  stream: TunnelStream,
  signal: AbortSignal,
): Promise<unknown> {
  switch (request.op) {
    case 'stdin':
      return serveInput(request, client, stream);
    case 'resize':
      await client.resize(request.execId, request.cols, request.rows, { signal });
      return null;
    case 'figures':
      return client.figures({ signal });
    case 'dial': {
      const port = await worker.dial(request.port, client, stream.signal);
      const outward = async () => {
        // An iterator of its own kind: the usual one destroys both directions at the end of this one.
        for await (const piece of port.iterator({ destroyOnReturn: false }))
          await stream.send(piece);
        stream.end();
      };
      await Promise.all([outward(), pipeline(stream.receive(), port)]).finally(() =>
        port.destroy(),
      );
      return null;
    }
    default:
      return serveFile(request, client, stream, signal);
  }
}

/** What takes no bytes is answered soon, or not at all: a sandbox that stands still does not say so. */
async function soon<T>(
  ms: number | undefined,
  stream: TunnelStream,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (ms === undefined) return work(stream.signal);
  const late = timeLimit(ms);
  try {
    return await work(AbortSignal.any([stream.signal, late]));
  } catch (fault) {
    if (late.aborted && !stream.signal.aborted)
      throw new TunnelRefused('unavailable', 'the sandbox does not answer');
    throw fault;
  }
}

async function serveInput(
  { execId, writer, offset, eof }: Extract<TunnelRequest, { op: 'stdin' }>,
  client: SupervisorClient,
  stream: TunnelStream,
): Promise<unknown> {
  const input = openInput(client, execId, { writer, offset, signal: stream.signal });
  let asked = false;
  for await (const piece of stream.receive()) {
    await input.write(piece);
    asked = true;
  }
  if (eof) await input.end();
  if (asked || eof) return { next: input.next };
  // No bytes: how far the writer has come.
  const nothing = { execId, writer, offset, data: Buffer.alloc(0) };
  const { next } = await client.stdin(nothing, { signal: stream.signal });
  return { next };
}

const aboutOf = ({ op }: TunnelRequest): 'exec' | 'file' | 'port' => {
  if (op === 'dial') return 'port';
  return op === 'stdin' || op === 'resize' ? 'exec' : 'file';
};

function within<T>(ms: number, promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    };
    const abort = () => reject(signal.reason);
    const timer = setTimeout(
      () => reject(new TunnelRefused('unavailable', 'the sandbox does not answer')),
      ms,
    );
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    promise.then(resolve, reject).finally(settle);
  });
}

/** Says that a sandbox is in use, so that it is not taken for idle. A hint: it may be lost. */
class Activity {
  private readonly told = new WeakMap<Worker, number>();

  constructor(private readonly log: Log) {}

  seen(worker: Worker, op: TunnelRequest['op']): void {
    if (op === 'figures') return;
    const at = Date.now();
    if (at - (this.told.get(worker) ?? 0) < ACTIVITY_EVERY_MS) return;
    this.told.set(worker, at);
    worker
      .report({ type: 'ActivityObserved', at, data: { activity: kindOf(op) } })
      .catch((error) => this.log('an activity was not reported', { reason: String(error) }));
  }
}

function kindOf(op: TunnelRequest['op']): 'stdin' | 'preview' | 'files' {
  if (op === 'dial') return 'preview';
  return op === 'stdin' || op === 'resize' ? 'stdin' : 'files';
}
