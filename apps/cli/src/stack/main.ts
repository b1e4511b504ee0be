import { resolve } from 'node:path';
import { DataDirectory } from './data-directory';
import { startStack } from './stack';

const defaultPort = 7878;

/** The embedded stack in the foreground, until Ctrl-C. */
async function main(): Promise<void> {
  process.umask(0o077);
  const data = DataDirectory.ofUser(process.env);
  const stack = await startStack({
    data,
    port: Number(process.env.VMUX_PORT || defaultPort),
    dist: resolve(__dirname, '../../../..'),
    log: (part, line) => process.stderr.write(`${part}: ${line}\n`),
  });
  let stopping = false;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (stopping) return;
      stopping = true;
      process.stderr.write('stopping; sandboxes go on\n');
      stack.stop().then(
        () => process.exit(0),
        (error) => {
          process.stderr.write(`stopping failed: ${error}\n`);
          process.exit(1);
        },
      );
    });
  }
  process.stdout.write(
    `vmux serves at ${stack.url}\nAPI key: ${stack.keyFile}\ndata:    ${data.path}\nCtrl-C stops it; sessions and their sandboxes stay.\n`,
  );
}

main().catch((error: Error) => {
  process.stderr.write(`vmux: ${error.message}\n`);
  process.exit(1);
});
