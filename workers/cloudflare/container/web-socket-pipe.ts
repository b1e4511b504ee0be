import { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';

/** Larger pieces are split: the runtime in between bounds the size of a message. */
const maxMessageBytes = 256 * 1024;

/**
 * A byte pipe out of a WebSocket: binary messages are bytes, where one ends means nothing. Text messages
 * are notices beside the bytes.
 */
export class WebSocketPipe extends Duplex {
  constructor(
    private readonly socket: WebSocket,
    onNotice: (text: string) => void = () => undefined,
  ) {
    super({ allowHalfOpen: false });
    socket.binaryType = 'nodebuffer';
    socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) onNotice(data.toString('utf8'));
      else if (!this.push(data)) socket.pause();
    });
    socket.on('close', (code) => {
      if (code === 1000 || code === 1005) this.push(null);
      else this.destroy(new Error(`the WebSocket was cut (${code})`));
    });
    socket.on('error', (fault) => this.destroy(fault));
  }

  override _read(): void {
    if (this.socket.isPaused) this.socket.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (fault?: Error | null) => void): void {
    const last = Math.max(0, Math.ceil(chunk.length / maxMessageBytes) - 1);
    for (let piece = 0; piece <= last; piece++) {
      const bytes = chunk.subarray(piece * maxMessageBytes, (piece + 1) * maxMessageBytes);
      this.socket.send(bytes, piece === last ? done : () => undefined);
    }
  }

  override _final(done: (fault?: Error | null) => void): void {
    this.socket.close(1000);
    done();
  }

  override _destroy(fault: Error | null, done: (fault: Error | null) => void): void {
    this.socket.terminate();
    done(fault);
  }
}
