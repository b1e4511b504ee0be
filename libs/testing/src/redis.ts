import { temporaryDirectory } from './cleanup';
import { withSystemPath } from './nats';
import { freePort } from './ports';
import { startProcess } from './process';
import { type Server, server } from './server';

export interface RedisOptions {
  readonly password?: string;
}

export interface Redis extends Server {
  readonly host: string;
  readonly port: number;
  /** With the password, if there is one. */
  readonly url: string;
}

/** A redis-server of this test's own, on a free loopback port. It keeps nothing on disk: a restart empties it. */
export async function startRedis({ password }: RedisOptions = {}): Promise<Redis> {
  const dir = temporaryDirectory('redis');
  const start = (port: number) =>
    startProcess({
      command: 'redis-server',
      args: ['-'],
      env: withSystemPath(),
      input: [
        'bind 127.0.0.1',
        `port ${port}`,
        `dir "${dir}"`,
        'save ""',
        'appendonly no',
        'daemonize no',
        ...(password === undefined ? [] : [`requirepass "${password}"`]),
        '',
      ].join('\n'),
      ready: (line) => (line.includes('Ready to accept connections') ? port : undefined),
    });
  const first = await onSomeFreePort(start);
  const port = first.ready;
  const credentials = password === undefined ? '' : `:${encodeURIComponent(password)}@`;
  return Object.assign(
    server(first, () => start(port)),
    { host: '127.0.0.1', port, url: `redis://${credentials}127.0.0.1:${port}` },
  );
}

/** Redis cannot choose a port by itself, and between choosing and binding another may take it. */
async function onSomeFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(await freePort());
    } catch (fault) {
      const taken = String(fault).includes('Address already in use');
      if (!taken || attempt === 3) throw fault;
    }
  }
}
