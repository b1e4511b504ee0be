import { createServer, type Server, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Sandbox } from '@vmux/sdk';
import { Failure } from './failure';

export interface Forwarding {
  /** Of the listener on this machine. */
  readonly localPort: number;
  readonly url: string;
  close(): void;
}

const maxConnections = 256;

/** Connections to a port of this machine's loopback go to a port of the session. */
export async function forwarding(
  sandbox: Sandbox,
  port: number,
  localPort: number,
  onFault: (fault: Error) => void,
): Promise<Forwarding> {
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    socket.on('error', () => undefined);
    carry(sandbox, port, socket).catch(onFault);
  });
  server.maxConnections = maxConnections;
  await listening(server, localPort);
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port was given');
  return {
    localPort: address.port,
    url: `http://127.0.0.1:${address.port}`,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

async function carry(sandbox: Sandbox, port: number, socket: Socket): Promise<void> {
  try {
    const gone = new AbortController();
    socket.once('close', () => gone.abort());
    const remote = await sandbox.ports.connect(port, { signal: gone.signal });
    remote.on('error', () => socket.resetAndDestroy());
    await Promise.all([pipeline(socket, remote), pipeline(remote, socket)]);
  } catch (fault) {
    const isOurs = socket.destroyed;
    // A refused port looks as it does on this machine: the connection is reset.
    socket.resetAndDestroy();
    if (!isOurs) throw fault;
  }
}

function listening(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (fault: NodeJS.ErrnoException) =>
      reject(
        fault.code === 'EADDRINUSE'
          ? new Failure(`port ${port} of this machine is taken`, 'give another: PORT:LOCAL')
          : new Failure(`port ${port} cannot be listened on: ${fault.message}`),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
}
