import { visible } from './escape';

/** Written, or held back until there is room; a reader that is gone ends us as it would any program. */
export function write(stream: NodeJS.WriteStream, data: string | Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(data, (fault) => {
      if (!fault) resolve();
      else if ((fault as NodeJS.ErrnoException).code === 'EPIPE') process.exit(128 + 13);
      else reject(fault);
    });
  });
}

/** A result. */
export const print = (line: string): Promise<void> => write(process.stdout, `${line}\n`);

/** A word to the person, never to a pipe's reader. */
export const say = (line: string): Promise<void> => write(process.stderr, `vmux: ${line}\n`);

/** Said only to somebody who watches. */
export async function whisper(line: string): Promise<void> {
  if (process.stderr.isTTY) await say(line);
}

/** Columns as wide as their widest cell, the last one as it is. */
export function table(rows: readonly (readonly string[])[]): string {
  const safe = rows.map((row) => row.map(visible));
  const widths = (safe[0] ?? []).map((_, column) =>
    Math.max(...safe.map((row) => row[column]?.length ?? 0)),
  );
  return safe
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

export function ageOf(iso: string, now = Date.now()): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(iso)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
