import { EventEmitter } from 'node:events';
import { until } from '@vmux/testing';
import type { WebSocket } from 'ws';
import type { ExecView } from '../src/application/exec-view';
import { Attachment, type AttachPort } from '../src/attach/attachment';

const REPAINT = Buffer.of(19);
const INPUT = Buffer.concat([Buffer.of(17), Buffer.alloc(8), Buffer.from('x')]);

/** Somebody who watches; takes what is sent, or not. */
class Watcher extends EventEmitter {
  bufferedAmount = 0;
  terminated = false;
  sent = 0;

  constructor(private readonly takes: boolean) {
    super();
  }

  send(frame: Buffer, _options: object, done: () => void): void {
    this.sent += 1;
    if (!this.takes) this.bufferedAmount += frame.length;
    setImmediate(done);
  }

  terminate(): void {
    this.terminated = true;
    this.emit('close');
  }

  pause(): void {}
  resume(): void {}
  ping(): void {}
  close(): void {}
  says = (message: Buffer) => this.emit('message', message, true);
}

function watching({ takes = true, repaintEveryMs = 60_000 } = {}) {
  const socket = new Watcher(takes);
  const seen = { paints: 0 };
  const port = {
    signal: new AbortController().signal,
    keepAliveMs: 60_000,
    repaintEveryMs,
    screens: {
      paint: async () => {
        seen.paints += 1;
        return { offset: 0, size: { cols: 80, rows: 24 }, bytes: Buffer.alloc(10) };
      },
    },
    logs: {
      // Nothing is ever written: it ends when it is no longer wanted.
      open: async ({ signal }: { signal: AbortSignal }) =>
        (async function* () {
          if (!signal.aborted)
            await new Promise((resolve) => signal.addEventListener('abort', resolve));
          return { next: 0, over: false };
        })(),
    },
    onFault: () => undefined,
  };
  const exec = { id: 'e1', status: 'running', outcome: null } as unknown as ExecView;
  const request = {
    ...{ sessionId: 'web-0a1b', exec, mode: 'watch' as const, writer: 1 },
    ...{ offset: null, size: null, scrollback: 0 },
  };
  const attachment = new Attachment(
    socket as unknown as WebSocket,
    request,
    port as unknown as AttachPort,
  );
  return { socket, seen, running: attachment.run() };
}

const turns = async (count: number) => {
  for (let at = 0; at < count; at++) await new Promise((resolve) => setImmediate(resolve));
};

describe('Somebody who watches a terminal', () => {
  it('has it painted again when they ask, and not more often than that is sensible', async () => {
    const eager = watching();
    await until(() => eager.seen.paints === 1);
    for (let at = 0; at < 500; at++) {
      eager.socket.says(REPAINT);
      await turns(2);
    }
    expect(eager.seen.paints).toBe(1);
    eager.socket.terminate();
    await eager.running;

    const patient = watching({ repaintEveryMs: 1 });
    for (let wanted = 1; wanted <= 3; wanted++) {
      await until(() => patient.seen.paints === wanted);
      await turns(5);
      patient.socket.says(REPAINT);
    }
    await until(() => patient.seen.paints === 4);
    patient.socket.terminate();
    await patient.running;
  });

  it('and asks for ever more without taking the answers is cut off', async () => {
    const { socket, running } = watching({ takes: false });
    await turns(10);
    for (let at = 0; at < 1_000_000 && !socket.terminated; at++) socket.says(INPUT);
    expect(socket.terminated).toBe(true);
    await running;
  });
});
