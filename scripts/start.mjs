// npm start: runs the parts of the stack that exist, in the foreground, until Ctrl-C.
import { ensurePackages, ensureSystem } from './setup.mjs';

await ensurePackages();
ensureSystem(['openssl']);
const { build } = await import('./build.mjs');
await build();
ensureSystem(['nats-server']);
await import('../dist/apps/cli/src/stack/main.js');
