import { createServer } from 'node:net';
import { resolve } from 'node:path';
import { DataDirectory } from './data-directory';
import { startStack } from './stack';
import { StackClaim } from './stack-record';

const defaultPort = 7878;

/** The embedded stack in the foreground, until Ctrl-C; `vmux up` runs the same in the background. */
async function main(): Promise<void> {
  process.umask(0o077);
  const data = DataDirectory.ofUser(process.env);
  const claim = await StackClaim.take(data.path);
  let stopping = false;
  let stop = async (): Promise<void> => undefined;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (stopping) return;
      stopping = true;
      process.stderr.write('stopping; sandboxes go on\n');
      stop().then(
        () => {
          claim.release();
          process.exit(0);
        },
        (error) => {
          process.stderr.write(`stopping failed: ${error}\n`);
          process.exit(1);
        },
      );
    });
  }
  try {
    const starting = startStack({
      data,
      port: await portToServe(),
      dist: resolve(__dirname, '../../../..'),
      extras: process.env.VMUX_WITH,
      log: (part, line) => process.stderr.write(`${part}: ${line}\n`),
      onPart: (name, pid) => claim.hasPart(name, pid),
    });
    // Stopped while it starts: what has begun is ended once all of it is there.
    stop = () => starting.then((stack) => stack.stop());
    const stack = await starting;
    claim.serves(stack.url);
    process.stdout.write(
      `vmux serves at ${stack.url}\nAPI key: ${stack.keyFile}\ndata:    ${data.path}\nCtrl-C stops it; sessions and their sandboxes stay.\n`,
    );
  } catch (error) {
    claim.release();
    throw error;
  }
}

/** The one that was asked for, or the usual one; another when that is taken. */
async function portToServe(): Promise<number> {
  const { VMUX_PORT: asked } = process.env;
  if (asked) {
    const port = Number(asked);
    if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
    throw new Error('set VMUX_PORT to a port, or to 0 for any');
  }
  const isFree = await new Promise<boolean>((done) => {
    const server = createServer()
      .once('error', () => done(false))
      .listen(defaultPort, '127.0.0.1', () => server.close(() => done(true)));
  });
  if (!isFree) process.stderr.write(`port ${defaultPort} is taken: serving at another\n`);
  return isFree ? defaultPort : 0;
}

main().catch((error: Error) => {
  process.stderr.write(`vmux: ${error.message}\n`);
  process.exit(1);
});
