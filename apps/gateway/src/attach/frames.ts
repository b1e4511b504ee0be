/** The messages of an attachment, `u8 type · body`, little-endian: docs/attach.md. */
export const PROTOCOL = 1;

const TYPE = {
  hello: 1,
  output: 2,
  screen: 3,
  resized: 4,
  taken: 5,
  gap: 6,
  exit: 7,
  error: 8,
  input: 17,
  resize: 18,
  repaint: 19,
} as const;

export const MAX_INPUT_BYTES = 64 * 1024;
/** Of one message from a client. */
export const MAX_MESSAGE_BYTES = MAX_INPUT_BYTES + 9;
export const MAX_SIDE = 1000;

export interface Size {
  readonly cols: number;
  readonly rows: number;
}

export type FromClient =
  | { readonly kind: 'input'; readonly offset: number; readonly bytes: Buffer }
  | ({ readonly kind: 'resize' } & Size)
  | { readonly kind: 'repaint' };

export class MalformedMessage extends Error {
  constructor(detail: string) {
    super(`a message is malformed: ${detail}`);
    this.name = 'MalformedMessage';
  }
}

export const hello = (about: object): Buffer => json(TYPE.hello, about);
export const exit = (about: object): Buffer => json(TYPE.exit, about);
export const error = (about: object): Buffer => json(TYPE.error, about);

export const output = (offset: number, bytes: Uint8Array): Buffer =>
  Buffer.concat([headed(TYPE.output, offset), bytes]);

export const screen = (offset: number, size: Size, bytes: Uint8Array): Buffer =>
  Buffer.concat([headed(TYPE.screen, offset), sized(size), bytes]);

export const resized = (offset: number, size: Size): Buffer =>
  Buffer.concat([headed(TYPE.resized, offset), sized(size)]);

export const taken = (next: number): Buffer => headed(TYPE.taken, next);

export const gap = (from: number, to: number, reason: string): Buffer => {
  const end = Buffer.alloc(8);
  end.writeBigUInt64LE(BigInt(to));
  return Buffer.concat([headed(TYPE.gap, from), end, Buffer.from(reason)]);
};

export function decode(message: Buffer): FromClient {
  const type = message[0];
  const body = message.subarray(1);
  switch (type) {
    case TYPE.input: {
      if (body.length < 9) throw new MalformedMessage('input without bytes');
      const offset = body.readBigUInt64LE(0);
      if (offset > BigInt(Number.MAX_SAFE_INTEGER)) throw new MalformedMessage('an offset');
      return { kind: 'input', offset: Number(offset), bytes: Buffer.from(body.subarray(8)) };
    }
    case TYPE.resize: {
      if (body.length !== 4) throw new MalformedMessage('a size');
      const size = { cols: body.readUInt16LE(0), rows: body.readUInt16LE(2) };
      if (!isSize(size)) throw new MalformedMessage('a size');
      return { kind: 'resize', ...size };
    }
    case TYPE.repaint:
      if (body.length !== 0) throw new MalformedMessage('repaint');
      return { kind: 'repaint' };
    default:
      throw new MalformedMessage(`type ${type}`);
  }
}

export const isSize = ({ cols, rows }: Size): boolean => isSide(cols) && isSide(rows);

const isSide = (side: number): boolean => Number.isInteger(side) && side >= 1 && side <= MAX_SIDE;

function headed(type: number, offset: number): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt8(type, 0);
  head.writeBigUInt64LE(BigInt(offset), 1);
  return head;
}

function sized({ cols, rows }: Size): Buffer {
  const size = Buffer.alloc(4);
  size.writeUInt16LE(cols, 0);
  size.writeUInt16LE(rows, 2);
  return size;
}

const json = (type: number, value: object): Buffer =>
  Buffer.concat([Buffer.from([type]), Buffer.from(JSON.stringify(value))]);
