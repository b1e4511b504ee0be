import type { ServerResponse } from 'node:http';
import type { EventStore } from '@vmux/event-store';
import { timeLimit } from '@vmux/messaging';
import { LogIndex } from '../application/log-index';
import type { LogReader } from '../application/log-reader';
import type { RunnerBoard } from '../application/runner-board';
import type { SessionReader } from '../application/session-reader';
import { hasEnded, type SessionView } from '../application/session-view';
import type { PreviewName } from './preview-names';

const TAIL_BYTES = 16 * 1024;
const KEEP_ALIVE_MS = 15_000;
/** What runners say of sandboxes in the making is in no history. */
const LOOK_EVERY_MS = 1_000;

/** What a page that waits for its app is told, until the port listens or never will. */
export class WaitingEvents {
  private readonly index: LogIndex;

  constructor(
    store: EventStore,
    private readonly logs: LogReader,
    private readonly reader: Pick<SessionReader, 'read' | 'waitFor'>,
    private readonly runners: Pick<RunnerBoard, 'makingOf'>,
  ) {
    this.index = new LogIndex(store);
  }

  async stream(
    response: ServerResponse,
    { sessionId, port }: PreviewName,
    showsLog: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const over = new AbortController();
    const until = AbortSignal.any([signal, over.signal]);
    response.once('close', () => over.abort());
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-content-type-options': 'nosniff',
    });
    const keepAlive = setInterval(() => response.write(': keep-alive\n\n'), KEEP_ALIVE_MS);
    const send = (event: string, data: object) =>
      this.write(response, `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`, until);
    try {
      const logged = showsLog ? this.log(sessionId, send, until) : Promise.resolve();
      await Promise.race([this.states(sessionId, port, send, until), logged.then(() => forEver)]);
    } finally {
      clearInterval(keepAlive);
      over.abort();
      response.end();
    }
  }

  private async states(
    sessionId: string,
    port: number,
    send: Send,
    signal: AbortSignal,
  ): Promise<void> {
    let seen = -1;
    let told = '';
    while (!signal.aborted) {
      const view =
        (await this.reader.waitFor(
          sessionId,
          (now) => (now.revision > seen ? now : undefined),
          AbortSignal.any([signal, timeLimit(LOOK_EVERY_MS)]),
        )) ?? (await this.reader.read(sessionId));
      if (!view) return;
      seen = view.revision;
      const state = this.stateOf(view);
      if (JSON.stringify(state) !== told) await send('state', state);
      told = JSON.stringify(state);
      if (hasEnded(view)) return send('over', {});
      if (view.status === 'running' && view.ports.has(port)) return send('ready', {});
    }
  }

  private stateOf({ id, status, stages, operation, pending }: SessionView): object {
    const making = pending && this.runners.makingOf({ sessionId: id, ...pending });
    const reached = [...new Set(stages.map(({ stage }) => stage))];
    return {
      status: operation ? `${status}, ${operation}` : status,
      stages: making ? [...reached, making.stage] : reached,
    };
  }

  private async log(sessionId: string, send: Send, signal: AbortSignal): Promise<void> {
    const target = { kind: 'session' } as const;
    const bounds = await this.index.bounds(sessionId);
    const size = bounds ? await this.index.sizeOf(sessionId, target, bounds) : 0;
    const offset = Math.max(0, size - TAIL_BYTES);
    const items = await this.logs.open({ sessionId, target, offset, follow: true, signal });
    for await (const item of items) {
      if (item.kind !== 'bytes') continue;
      await send('log', { b64: Buffer.from(item.bytes).toString('base64') });
      if (signal.aborted) return;
    }
  }

  private async write(response: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted || response.write(text)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        response.off('drain', done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      response.once('drain', done);
      signal.addEventListener('abort', done);
    });
  }
}

type Send = (event: string, data: object) => Promise<void>;

const forEver = new Promise<void>(() => undefined);
