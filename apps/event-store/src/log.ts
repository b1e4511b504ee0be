/** One JSON object per line on standard error; standard output belongs to the ready line. */
export function log(
  level: 'info' | 'warn' | 'error' | 'fatal',
  message: string,
  error?: unknown,
): void {
  const detail = error instanceof Error ? error.message : error;
  const line = { time: new Date().toISOString(), level, message, error: detail };
  process.stderr.write(`${JSON.stringify(line)}\n`);
}

// Whoever started the process may have gone, and its end of the pipe with it: that is no reason to end.
process.stdout.on('error', () => undefined);
process.stderr.on('error', () => undefined);
