import type { Command, CommandExit, Terminal, TerminalItem } from '@vmux/sdk';
import { UsageError } from '../failure';
import { DetachKeys } from '../terminal/detach-keys';
import { visible } from '../terminal/escape';
import { write } from '../terminal/output';
import { blankScreen, leaveScreen } from '../terminal/screen-reset';

export interface AttachedOptions {
  /** Only look on. */
  readonly watch?: boolean;
  /** From the first byte: a terminal that was made for us has shown nothing yet. */
  readonly fromStart?: boolean;
}

/** How long a Ctrl-P waits for the Ctrl-Q that would make us leave. */
const heldKeyMs = 500;
const leavingSignals = ['SIGTERM', 'SIGHUP', 'SIGINT'] as const;

export const ownSize = (): { cols: number; rows: number } => ({
  cols: bounded(process.stdout.columns, 80),
  rows: bounded(process.stdout.rows, 24),
});

const bounded = (given: number | undefined, otherwise: number): number =>
  Math.min(Math.max(given || otherwise, 1), 1000);

export function needTerminal(what: string): void {
  if (process.stdin.isTTY && process.stdout.isTTY) return;
  throw new UsageError(`${what} needs a terminal`, 'leave it out in pipes and scripts');
}

/** Shows a terminal and types into it until it ends, or until we leave: then null. */
export async function attached(
  command: Command,
  { watch = false, fromStart = false }: AttachedOptions = {},
): Promise<CommandExit | null> {
  const { stdin, stdout } = process;
  const offset = fromStart ? 0 : undefined;
  const terminal = command.attach({ ...ownSize(), offset, watch });
  const leave = () => terminal.detach();
  const resized = () => {
    const { cols, rows } = ownSize();
    if (!watch) terminal.resize(cols, rows);
  };
  const typed = typist(terminal, watch);
  const isRaw = Boolean(stdin.isTTY);
  if (isRaw) stdin.setRawMode(true);
  stdin.on('data', typed);
  stdout.on('resize', resized);
  for (const signal of leavingSignals) process.on(signal, leave);
  try {
    const exit = await shown(terminal, watch);
    if (stdout.isTTY) await write(stdout, exit ? leaveScreen : `${leaveScreen}\r\n`);
    return exit;
  } catch (fault) {
    if (stdout.isTTY) await write(stdout, `${leaveScreen}\r\n`);
    throw fault;
  } finally {
    stdin.off('data', typed);
    stdin.pause();
    if (isRaw) stdin.setRawMode(false);
    stdout.off('resize', resized);
    for (const signal of leavingSignals) process.off(signal, leave);
  }
}

async function shown(terminal: Terminal, watch: boolean): Promise<CommandExit | null> {
  let isForeignSize = false;
  for await (const item of terminal) {
    if (item.kind === 'exit') return item.exit;
    if (item.kind === 'screen') isForeignSize = !isOurs(item);
    // Painted in the size of somebody else: once the terminal has ours, it is painted again.
    if (item.kind === 'resized' && isForeignSize && !watch && isOurs(item)) {
      isForeignSize = false;
      terminal.repaint();
    }
    const text = textOf(item);
    if (text.length > 0) await write(process.stdout, text);
  }
  return null;
}

const isOurs = ({ cols, rows }: { cols: number; rows: number }): boolean => {
  const own = ownSize();
  return own.cols === cols && own.rows === rows;
};

function textOf(item: TerminalItem): string | Uint8Array {
  switch (item.kind) {
    case 'bytes':
      return item.bytes;
    case 'screen':
      return Buffer.concat([Buffer.from(blankScreen), item.bytes]);
    case 'gap':
      return `\r\n[bytes ${item.from} to ${item.to} no longer exist: ${visible(item.reason)}]\r\n`;
    case 'refused':
      return `\r\n[not typed: ${visible(item.error.message)}]\r\n`;
    default:
      return '';
  }
}

function typist(terminal: Terminal, watch: boolean): (typed: Buffer) => void {
  const keys = new DetachKeys();
  let timer: NodeJS.Timeout | undefined;
  const type = (bytes: Buffer) => {
    // Somebody who watches can leave with Ctrl-C too: it goes nowhere else.
    if (watch && bytes.includes(0x03)) terminal.detach();
    if (watch || bytes.length === 0) return;
    process.stdin.pause();
    void terminal.type(bytes).then(() => process.stdin.resume());
  };
  return (typed) => {
    clearTimeout(timer);
    const { bytes, detach } = keys.pass(typed);
    type(bytes);
    if (detach) terminal.detach();
    else timer = setTimeout(() => type(keys.release()), heldKeyMs);
  };
}
