import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { temporaryDirectory } from './cleanup';
import { startProcess } from './process';
import { type Server, server } from './server';

export interface EventStoreOptions {
  /** Its data; a temporary directory without it. */
  readonly dir?: string;
  /** No TLS and no password. */
  readonly insecure?: boolean;
  /** More arguments for the server. */
  readonly args?: readonly string[];
  /** More arguments for node. */
  readonly nodeArgs?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
}

export interface EventStoreServer extends Server {
  readonly dir: string;
  readonly port: number;
  readonly httpPort: number;
  /** The connection string, with the password in it when there is one. */
  readonly url: string;
  /** The same without the password, to go with `passwordFile`. */
  readonly urlWithoutPassword: string;
  readonly passwordFile: string | undefined;
  readonly caFile: string | undefined;
}

interface Ready {
  readonly port: number;
  readonly httpPort: number;
  readonly caFile?: string;
  readonly passwordFile?: string;
}

/** An embedded event store of this test's own, from dist/, on free loopback ports. */
export async function startEventStore(options: EventStoreOptions = {}): Promise<EventStoreServer> {
  const dir = options.dir ?? temporaryDirectory('event-store');
  const start = (port: number, httpPort: number) =>
    startProcess<Ready>({
      command: process.execPath,
      args: [
        ...(options.nodeArgs ?? []),
        join(projectRoot(), 'dist/apps/event-store/src/main.js'),
        ...['--data', dir, '--port', String(port), '--http-port', String(httpPort)],
        ...(options.insecure ? ['--insecure'] : []),
        ...(options.args ?? []),
      ],
      env: options.env,
      ready: readyLine,
    });
  const first = await start(0, 0);
  const { port, httpPort, caFile, passwordFile } = first.ready;
  const handle = server(first, () => start(port, httpPort));
  const password = passwordFile && readFileSync(passwordFile, 'utf8').trim();
  const url = (credentials: string) =>
    options.insecure
      ? `esdb://127.0.0.1:${port}?tls=false`
      : `esdb://${credentials}127.0.0.1:${port}?tls=true&tlsCAFile=${encodeURIComponent(caFile ?? '')}`;
  return Object.assign(handle, {
    dir,
    port,
    httpPort,
    caFile,
    passwordFile,
    url: url(password ? `admin:${encodeURIComponent(password)}@` : ''),
    urlWithoutPassword: url(''),
  });
}

function readyLine(line: string): Ready | undefined {
  if (!line.startsWith('{')) return undefined;
  const said: Ready & { readonly ready?: boolean } = JSON.parse(line);
  return said.ready === true ? said : undefined;
}

/** The directory of the project's package.json, from the sources as well as from dist/. */
export function projectRoot(): string {
  for (let dir = __dirname; dir !== dirname(dir); dir = dirname(dir)) {
    if (existsSync(join(dir, 'package.json')) && existsSync(join(dir, 'nest-cli.json'))) return dir;
  }
  throw new Error(`no project above ${__dirname}`);
}
