import { until } from '@vmux/testing';
import { Terminal } from '@xterm/headless';
import { WebSocket } from 'ws';

export interface TerminalOptions {
  readonly key?: string | null;
  readonly query?: Readonly<Record<string, string | number>>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A client of one terminal as docs/attach.md describes it, written against that page alone. */
export class TerminalClient {
  // biome-ignore lint/suspicious/noExplicitAny: what a message holds is what the test asserts
  hello: any = null;
  // biome-ignore lint/suspicious/noExplicitAny: what a message holds is what the test asserts
  exit: any = null;
  // biome-ignore lint/suspicious/noExplicitAny: what a message holds is what the test asserts
  readonly errors: any[] = [];
  readonly screens: { offset: number; cols: number; rows: number; bytes: Buffer }[] = [];
  readonly resizes: { offset: number; cols: number; rows: number }[] = [];
  readonly gaps: { from: number; to: number; reason: string }[] = [];
  readonly pieces: Buffer[] = [];
  /** Where the output goes on. */
  next: number | null = null;
  sent = 0;
  taken = 0;
  closed: { code: number; reason: string } | null = null;
  terminal = new Terminal({ cols: 80, rows: 24, allowProposedApi: true, scrollback: 1000 });
  private written: Promise<void> = Promise.resolve();

  private constructor(readonly socket: WebSocket) {
    socket.on('message', (data, isBinary) => {
      if (!isBinary || !Buffer.isBuffer(data)) throw new Error('a message that is not binary');
      this.take(data);
    });
    socket.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
    });
    socket.on('error', () => undefined);
  }

  static async open(
    url: string,
    path: string,
    options: TerminalOptions = {},
  ): Promise<TerminalClient> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(options.query ?? {})) query.set(name, String(value));
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${path}?${query}`, {
      headers: {
        ...(options.key ? { authorization: `Bearer ${options.key}` } : {}),
        ...options.headers,
      },
      perMessageDeflate: false,
    });
    const client = new TerminalClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('open', () => resolve());
      socket.once('unexpected-response', (_request, response) => {
        const pieces: Buffer[] = [];
        response.on('data', (piece: Buffer) => pieces.push(piece));
        response.on('end', () =>
          reject(new AttachRefused(response.statusCode ?? 0, Buffer.concat(pieces).toString())),
        );
      });
      socket.once('error', reject);
    });
    return client;
  }

  get output(): Buffer {
    return Buffer.concat(this.pieces);
  }

  type(text: string | Buffer): void {
    const bytes = Buffer.from(text as string);
    this.sendInput(this.sent, bytes);
    this.sent += bytes.length;
  }

  sendInput(offset: number, bytes: Buffer): void {
    const head = Buffer.alloc(9);
    head.writeUInt8(17, 0);
    head.writeBigUInt64LE(BigInt(offset), 1);
    this.socket.send(Buffer.concat([head, bytes]));
  }

  resize(cols: number, rows: number): void {
    const frame = Buffer.alloc(5);
    frame.writeUInt8(18, 0);
    frame.writeUInt16LE(cols, 1);
    frame.writeUInt16LE(rows, 3);
    this.socket.send(frame);
  }

  repaint(): void {
    this.socket.send(Buffer.from([19]));
  }

  async shows(text: string | RegExp): Promise<void> {
    try {
      await until(async () => (await this.text()).match(text), { timeoutMs: 30_000, everyMs: 20 });
    } catch (cause) {
      const { sent, taken, closed, errors, resizes, next } = this;
      const about = JSON.stringify({ sent, taken, closed, errors, resizes, next });
      throw new Error(`${text} does not show: ${about}\n${await this.text()}`, { cause });
    }
  }

  async prints(text: string | RegExp): Promise<void> {
    await until(() => this.output.toString().match(text), { timeoutMs: 30_000, everyMs: 20 });
  }

  /** The visible lines. */
  async text(): Promise<string> {
    await this.written;
    const { active } = this.terminal.buffer;
    return Array.from(
      { length: this.terminal.rows },
      (_, row) => active.getLine(active.baseY + row)?.translateToString(true) ?? '',
    ).join('\n');
  }

  /** Everything that can be seen, cell by cell, and what changes how keys are sent. */
  async picture(): Promise<object> {
    await this.written;
    return pictureOf(this.terminal);
  }

  async ended(): Promise<void> {
    await until(() => this.closed !== null, { timeoutMs: 30_000, everyMs: 20 });
  }

  close(): void {
    this.socket.terminate();
  }

  private take(frame: Buffer): void {
    const body = frame.subarray(1);
    switch (frame[0]) {
      case 1:
        this.hello = JSON.parse(body.toString());
        return;
      case 2: {
        const offset = Number(body.readBigUInt64LE(0));
        if (this.next !== null && offset !== this.next)
          throw new Error(`output at ${offset}, expected ${this.next}`);
        const bytes = Buffer.from(body.subarray(8));
        this.next = offset + bytes.length;
        this.pieces.push(bytes);
        this.write(bytes);
        return;
      }
      case 3: {
        const offset = Number(body.readBigUInt64LE(0));
        const [cols, rows] = [body.readUInt16LE(8), body.readUInt16LE(10)];
        const bytes = Buffer.from(body.subarray(12));
        this.screens.push({ offset, cols, rows, bytes });
        this.next = offset;
        this.written = this.written.then(() => {
          this.terminal.reset();
          this.terminal.resize(cols, rows);
        });
        this.write(bytes);
        return;
      }
      case 4: {
        const resized = {
          offset: Number(body.readBigUInt64LE(0)),
          cols: body.readUInt16LE(8),
          rows: body.readUInt16LE(10),
        };
        this.resizes.push(resized);
        this.written = this.written.then(() => this.terminal.resize(resized.cols, resized.rows));
        return;
      }
      case 5:
        this.taken = Number(body.readBigUInt64LE(0));
        return;
      case 6: {
        const [from, to] = [Number(body.readBigUInt64LE(0)), Number(body.readBigUInt64LE(8))];
        this.gaps.push({ from, to, reason: body.subarray(16).toString() });
        this.next = to;
        return;
      }
      case 7:
        this.exit = JSON.parse(body.toString());
        return;
      case 8:
        this.errors.push(JSON.parse(body.toString()));
        return;
      default:
        throw new Error(`a frame of type ${frame[0]}`);
    }
  }

  private write(bytes: Buffer): void {
    this.written = this.written.then(
      () => new Promise<void>((resolve) => this.terminal.write(bytes, resolve)),
    );
  }
}

export class AttachRefused extends Error {
  constructor(
    readonly status: number,
    readonly body: string,
  ) {
    super(`${status} ${body}`);
  }
}

export function pictureOf(terminal: Terminal): object {
  const { active } = terminal.buffer;
  const rows = Array.from({ length: terminal.rows }, (_, row) => {
    const line = active.getLine(active.baseY + row);
    return Array.from({ length: terminal.cols }, (_, column) => {
      const cell = line?.getCell(column);
      if (!cell) return '';
      const flags = [
        ...[cell.isBold(), cell.isDim(), cell.isItalic(), cell.isUnderline(), cell.isBlink()],
        ...[cell.isInverse(), cell.isInvisible(), cell.isStrikethrough(), cell.isOverline()],
      ];
      const isBeside = (offset: number, width: number) =>
        line?.getCell(column + offset)?.getWidth() === width;
      // Half a wide character, left over by what was put into its middle, is blank.
      const isHalf =
        cell.getWidth() === 2 ? !isBeside(1, 0) : cell.getWidth() === 0 && !isBeside(-1, 2);
      const isSpace = cell.getChars() === ' ' && cell.isAttributeDefault();
      const empty = cell.getChars() === '' || isHalf || isSpace;
      const colours = [
        ...(empty ? [] : [cell.getFgColorMode(), cell.getFgColor()]),
        ...[cell.getBgColorMode(), cell.getBgColor()],
      ];
      const bits = empty ? '' : flags.map((flag) => (flag ? 1 : 0)).join('');
      return `${empty ? '' : cell.getChars()}|${isHalf ? 1 : cell.getWidth()}|${colours.join(',')}|${bits}`;
    });
  });
  const { cols, rows: height, modes } = terminal;
  const { cursorX, cursorY, type } = active;
  return { cols, height, type, cursorX, cursorY, modes: { ...modes }, rows };
}
