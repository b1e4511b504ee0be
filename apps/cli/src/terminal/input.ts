import { fstatSync } from 'node:fs';

const maxHeldBytes = 1024 * 1024;

/** Whether anything can come from our stdin: a terminal, a pipe or a file, and not /dev/null. */
export function hasInput(): boolean {
  try {
    return process.stdin.isTTY || !fstatSync(0).isCharacterDevice();
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'EBADF') return false;
    throw fault;
  }
}

/** What comes from our stdin, to its end: each time all that came meanwhile, up to a limit. */
export async function* ownInput(stdin: NodeJS.ReadStream = process.stdin): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let size = 0;
  let isOver = false;
  let fault: Error | null = null;
  let wake: () => void = () => undefined;
  stdin.on('data', (piece: Buffer) => {
    held.push(piece);
    size += piece.length;
    if (size >= maxHeldBytes) stdin.pause();
    wake();
  });
  stdin.once('end', () => {
    isOver = true;
    wake();
  });
  stdin.once('error', (error) => {
    fault = error;
    wake();
  });
  for (;;) {
    if (fault) throw fault;
    if (held.length > 0) {
      const all = Buffer.concat(held);
      held = [];
      size = 0;
      stdin.resume();
      yield all;
    } else if (isOver) return;
    else
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  }
}
