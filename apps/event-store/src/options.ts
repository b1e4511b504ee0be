import { isIP } from 'node:net';
import { parseArgs } from 'node:util';

export interface Options {
  readonly directory: string;
  readonly host: string;
  readonly port: number;
  readonly httpPort: number | undefined;
  readonly tlsDirectory: string;
  readonly insecure: boolean;
  readonly walLimitBytes: number;
}

export const HELP = `usage: event-store --data <directory> [options]

An event store that speaks EventStoreDB's protocol and keeps its events in SQLite.

  --data <directory>     where the events are; made if missing
  --host <address>       address to listen on (127.0.0.1)
  --port <number>        port to listen on; 0 takes a free one (0)
  --http-port <number>   also serve /health/live, /health/ready and /metrics there, without TLS, on --host
  --tls-dir <directory>  certificate and password files; made if missing (<data>/tls)
  --insecure             no TLS and no password; only on a loopback address
  --wal-limit-mib <n>    checkpoint when the write-ahead log has grown by this much (16)
  --help                 this text

One line of JSON on standard output says that it is ready and where; everything else is logged to standard
error. The user is "admin", the password is in the file named by that line. SIGTERM and SIGINT shut down.
`;

export class UsageError extends Error {
  readonly code = 'usage';
  constructor(message: string) {
    super(`${message}; --help says more`);
    this.name = 'UsageError';
  }
}

/** Undefined: only the help is wanted. */
export function parseOptions(args: readonly string[]): Options | undefined {
  const values = parsed(args);
  if (values.help) return undefined;
  if (!values.data) throw new UsageError('--data is missing');
  const host = values.host ?? '127.0.0.1';
  const insecure = values.insecure ?? false;
  if (insecure && !isLoopback(host)) {
    throw new UsageError(
      `--insecure listens on a loopback address only, not on ${host}: leave it out to use TLS and a password`,
    );
  }
  return {
    directory: values.data,
    host,
    port: portOf(values.port ?? '0', '--port'),
    httpPort:
      values['http-port'] === undefined ? undefined : portOf(values['http-port'], '--http-port'),
    tlsDirectory: values['tls-dir'] ?? `${values.data}/tls`,
    insecure,
    walLimitBytes: mebibytes(values['wal-limit-mib'] ?? '16'),
  };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        data: { type: 'string' },
        host: { type: 'string' },
        port: { type: 'string' },
        'http-port': { type: 'string' },
        'tls-dir': { type: 'string' },
        insecure: { type: 'boolean' },
        'wal-limit-mib': { type: 'string' },
        help: { type: 'boolean' },
      },
    }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));

function portOf(text: string, option: string): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65535) throw new UsageError(`${option} ${text} is not a port`);
  return port;
}

function mebibytes(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new UsageError(`--wal-limit-mib ${text} is not a number`);
  return Number(text) * 1024 * 1024;
}
