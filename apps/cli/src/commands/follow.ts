import { constants } from 'node:os';
import type { Command, CommandExit, CommandResult } from '@vmux/sdk';
import { exitCodes } from '../failure';
import { ownInput } from '../terminal/input';
import { say, write } from '../terminal/output';

export interface FollowOptions {
  /** What INT and TERM do: make us leave while the command goes on, or reach the command. */
  readonly onInterrupt: 'detach' | 'forward';
  /** Whether output goes to our own stdout and stderr as it comes. */
  readonly streams: boolean;
  /** Whether our own stdin is its input, to the end. */
  readonly input?: boolean;
  /** Told before anything is written. */
  readonly onOutput?: () => void;
}

/** Null when we left and the command goes on. */
export async function follow(
  command: Command,
  { onInterrupt, streams, input = false, onOutput = () => undefined }: FollowOptions,
): Promise<CommandResult | null> {
  const leave = new AbortController();
  const interrupted = onInterrupt === 'detach' ? () => leave.abort() : forwarding(command, leave);
  process.on('SIGINT', interrupted);
  process.on('SIGTERM', interrupted);
  const over = new AbortController();
  const given = input
    ? command.input().giveAll(ownInput(), { signal: AbortSignal.any([leave.signal, over.signal]) })
    : null;
  given?.catch((fault: Error) => {
    if (!leave.signal.aborted && !over.signal.aborted)
      return say(`its input was cut: ${fault.message}`);
  });
  try {
    return await command.wait({
      signal: leave.signal,
      ...(streams
        ? {
            maxOutputBytes: 0,
            onStdout: shown(process.stdout, onOutput),
            onStderr: shown(process.stderr, onOutput),
          }
        : {}),
    });
  } catch (fault) {
    if (leave.signal.aborted) return null;
    throw fault;
  } finally {
    over.abort();
    process.off('SIGINT', interrupted);
    process.off('SIGTERM', interrupted);
  }
}

const shown =
  (stream: NodeJS.WriteStream, onOutput: () => void) =>
  (bytes: Buffer): Promise<void> => {
    onOutput();
    return write(stream, bytes);
  };

/** The signal itself first; then an end that cannot be ignored; then we leave. */
function forwarding(command: Command, leave: AbortController): (signal: NodeJS.Signals) => void {
  let told = 0;
  const failed = (fault: Error) => say(`it could not be told: ${fault.message}`);
  return (signal) => {
    told += 1;
    if (told === 1)
      // One that has not started cannot be sent a signal, but it need not start.
      command.signal(signal).catch(() => command.cancel().catch(failed));
    else if (told === 2) command.cancel().catch(failed);
    else leave.abort();
  };
}

export interface Ending {
  readonly exit: CommandExit;
  readonly timedOut: boolean;
}

/** What we exit with, as a shell would; says what no number can say. */
export async function exitCodeOf({ exit, timedOut }: Ending): Promise<number> {
  if (timedOut) {
    await say('its time was over');
    return exitCodes.timedOut;
  }
  switch (exit.kind) {
    case 'exited':
      return exit.code;
    case 'signalled':
      return 128 + (constants.signals[exit.signal as NodeJS.Signals] ?? 0);
    case 'not_started': {
      await say(
        `it never ran (${exit.reason.replaceAll('_', ' ')})${exit.message ? `: ${exit.message}` : ''}`,
      );
      if (exit.reason === 'cancelled') return exitCodes.interrupted;
      return exit.reason === 'spawn_failed' ? exitCodes.notFound : exitCodes.failed;
    }
    case 'unknown':
      await say(
        `nobody can tell how it ended (${exit.reason.replaceAll('_', ' ')}): it may have run in part`,
      );
      return exitCodes.outcomeUnknown;
  }
}

export const isInteractive = (): boolean => Boolean(process.stdin.isTTY && process.stderr.isTTY);

/** `NAME=value`, or `NAME` for the value that it has here. */
export function variablesFrom(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      return at < 0 ? [text, process.env[text] ?? ''] : [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}
