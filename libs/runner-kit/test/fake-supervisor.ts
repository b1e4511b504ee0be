import { type Duplex, duplexPair } from 'node:stream';
import { SupervisorClient } from '../src/index';
import {
  BodyReader,
  BodyWriter,
  FRAME,
  type Frame,
  FrameDecoder,
  MAGIC,
  MAX_FRAME,
  PROTOCOL_VERSION,
} from '../src/wire';

export const tag = { epoch: 3, instance: 'abc' };

export function helloFrame(
  changes: { version?: number; flags?: number; epoch?: number; instance?: string } = {},
) {
  return new BodyWriter()
    .u32(MAGIC)
    .u16(changes.version ?? PROTOCOL_VERSION)
    .u16(changes.flags ?? 1)
    .u64(changes.epoch ?? tag.epoch)
    .u64(1)
    .u32(MAX_FRAME)
    .bytes(changes.instance ?? tag.instance)
    .bytes('fake 1')
    .frame(FRAME.hello, 0);
}

export interface ExecChanges {
  readonly state?: number;
  readonly code?: number;
  readonly stdout?: number;
  readonly flags?: number;
}

export function execFrame(id: number, execId: string, changes: ExecChanges = {}): Buffer {
  return new BodyWriter()
    .u8(changes.state ?? 3)
    .u8(changes.flags ?? 0)
    .u8(0)
    .u8(0)
    .u32((changes.code ?? 0) >>> 0)
    .u32(1)
    .u32(77)
    .u64(1)
    .u64(2)
    .u64(changes.stdout ?? 0)
    .u64(0)
    .u64(0)
    .u64(0)
    .bytes(execId)
    .frame(FRAME.exec, id);
}

export function outputFrame(id: number, mergedOffset: number, data: Buffer, kind = 1): Buffer {
  return new BodyWriter()
    .u8(kind)
    .u64(mergedOffset)
    .u64(mergedOffset)
    .u64(1)
    .bytes(data)
    .frame(FRAME.output, id);
}

/** The other end of a pipe, played by the test: says what the test says, honest or not. */
export class FakeSupervisor {
  readonly #frames: Frame[] = [];
  #wake: (() => void) | undefined;
  readonly pipe: Duplex;
  readonly end: Duplex;

  constructor() {
    [this.pipe, this.end] = duplexPair();
    const decoder = new FrameDecoder(MAX_FRAME);
    this.end.on('data', (chunk: Buffer) => {
      this.#frames.push(...decoder.push(chunk));
      this.#wake?.();
    });
    this.end.on('error', () => undefined);
  }

  static async greeted(flags = 1): Promise<{ client: SupervisorClient; peer: FakeSupervisor }> {
    const peer = new FakeSupervisor();
    peer.say(helloFrame({ flags }));
    const client = await SupervisorClient.connect(peer.pipe, tag);
    await peer.hear(FRAME.hello);
    return { client, peer };
  }

  say(...frames: Buffer[]): void {
    this.end.write(Buffer.concat(frames));
  }

  /** The next frame of that type; others before it are passed over. */
  async hear(type: number): Promise<Frame> {
    for (;;) {
      const frame = await this.hearAny();
      if (frame.type === type) return frame;
    }
  }

  async hearAny(): Promise<Frame> {
    for (;;) {
      const frame = this.#frames.shift();
      if (frame) return frame;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  heardNothing(): boolean {
    return this.#frames.length === 0;
  }
}

export const bodyOf = (frame: Frame): BodyReader => new BodyReader(frame, 'heard');
