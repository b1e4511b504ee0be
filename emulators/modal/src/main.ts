import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { type CompatServiceDefinition, createServer, ServerError, Status } from 'nice-grpc';
import { NsDriver } from '../../../apps/runner-local/src/drivers/ns-driver';
import { commandRouter } from './command-router';
import { connectEndpoint } from './connect-endpoint';
import { controlPlane } from './control-plane';
import { loadDefinitions } from './definitions';
import { FaultBoard, parseFaults } from './faults';
import { ImageBuilder } from './image-builder';
import { ImageShelf } from './image-shelf';
import { Tokens } from './tokens';
import { STATUS, type StatusNumber } from './wire';
import { WorkerPool } from './worker-pool';

const MAX_MESSAGE_BYTES = 100 * 1024 * 1024;

/**
 * Modal on this machine, for those who have no account: the vendor's unmodified SDK talks to it over its
 * own protocol, and sandboxes are namespaces here. An emulator; README.md says what of it is a guess.
 */
async function main(): Promise<void> {
  process.umask(0o077);
  const dir = process.env.VMUX_MODAL_EMULATOR_DIR;
  if (!dir) throw new Error('set VMUX_MODAL_EMULATOR_DIR to a directory of its own');
  const native = process.env.VMUX_NATIVE_DIR || resolve(__dirname, '../../../native');
  const driver = new NsDriver({
    dataDir: join(resolve(dir), 'workers'),
    launcherPath: join(native, 'vmux-ns'),
    supervisorPath: join(native, 'vmux-supervisor'),
    cgroupParent: process.env.VMUX_CGROUP_PARENT || 'vmux-modal',
  });
  const say = (message: string) => process.stderr.write(`modal emulator: ${message}\n`);
  const board = new FaultBoard();
  const tokens = new Tokens();
  const images = new ImageShelf(driver, join(resolve(dir), 'images'));
  await images.open();
  const pool = new WorkerPool(driver, images, join(resolve(dir), 'sandboxes'), board, say);
  await pool.open();
  const builder = new ImageBuilder(images, driver);
  await builder.open();

  const tokenId = process.env.MODAL_TOKEN_ID || 'ak-emulated';
  const secretFile = process.env.MODAL_TOKEN_SECRET_FILE;
  const tokenSecret = secretFile
    ? readFileSync(secretFile, 'utf8').trim()
    : `as-${randomBytes(16).toString('hex')}`;
  const definitions = loadDefinitions();
  const options = {
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
  };
  let port = 0;
  const server = createServer(options);
  const routerUrl = () => `https://127.0.0.1:${port}`;
  const connects = connectEndpoint(pool, board, tokens);
  await new Promise<void>((ready) => connects.listen(0, '127.0.0.1', ready));
  const connectUrl = () => `http://127.0.0.1:${(connects.address() as AddressInfo).port}`;
  const access = { tokenId, tokenSecret, routerUrl, connectUrl };
  const settings = { ...access, pool, builder, images, board, tokens };
  add(server, definitions.ModalClientDefinition, controlPlane(settings));
  add(server, definitions.TaskCommandRouterDefinition, commandRouter(pool, board, tokens));
  port = await server.listen(`127.0.0.1:${Number(process.env.VMUX_MODAL_EMULATOR_PORT || 0)}`);

  const control = createHttpServer((request, response) => {
    answer(request, { pool, builder, images, board }, tokenSecret).then(
      (body) => response.end(JSON.stringify(body)),
      (fault: Error) => {
        response.statusCode = 400;
        response.end(JSON.stringify({ message: fault.message }));
      },
    );
  });
  await new Promise<void>((ready) => control.listen(0, '127.0.0.1', ready));
  const controlPort = (control.address() as AddressInfo).port;
  const controlUrl = `http://127.0.0.1:${controlPort}`;
  const controlFile = join(resolve(dir), 'control.json');
  writeFileSync(controlFile, JSON.stringify({ url: controlUrl, token: tokenSecret }));

  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.once(signal, () => {
      pool.close();
      server.forceShutdown();
      control.close();
      connects.close();
      connects.closeAllConnections();
      driver.close().then(() => process.exit(0));
    });
  const url = `http://127.0.0.1:${port}`;
  // A secret that was given in a file stays there.
  const secrets = secretFile ? {} : { tokenId, tokenSecret };
  const ready = { ready: true, emulated: true, url, controlPort, ...secrets };
  process.stdout.write(`${JSON.stringify(ready)}\n`);
}

type Methods = Record<string, unknown>;

/** Every method that is not emulated says so. */
function add(
  server: ReturnType<typeof createServer>,
  definition: CompatServiceDefinition,
  methods: Methods,
): void {
  const names = Object.keys((definition as { methods: Record<string, unknown> }).methods);
  const all = Object.fromEntries(
    names.map((name) => [
      name,
      methods[name] ??
        (async () => {
          throw new ServerError(Status.UNIMPLEMENTED, `${name} is not emulated`);
        }),
    ]),
  );
  server.add(definition, all as never);
}

const ENDINGS: Readonly<Record<string, StatusNumber>> = {
  lost: STATUS.internalFailure,
  evicted: STATUS.eviction,
  'idle-timeout': STATUS.idleTimeout,
  timeout: STATUS.timeout,
};

interface Stage {
  readonly pool: WorkerPool;
  readonly builder: ImageBuilder;
  readonly images: ImageShelf;
  readonly board: FaultBoard;
}

/** For tests and the curious: sets faults and ends sandboxes. */
async function answer(
  request: IncomingMessage,
  { pool, builder, images, board }: Stage,
  secret: string,
): Promise<unknown> {
  if (request.headers.authorization !== `Bearer ${secret}`) throw new Error('wrong token');
  let text = '';
  for await (const chunk of request) text += chunk;
  if (request.method === 'GET' && request.url === '/sandboxes')
    return pool.all.map(({ box: _, ...sandbox }) => sandbox);
  if (request.method === 'GET' && request.url === '/calls')
    return { input: board.inputCalls, connects: board.connects, ...board.calls };
  if (request.method === 'GET' && request.url === '/builds')
    return builder.all.map(({ log: _, ...build }) => build);
  if (request.method === 'GET' && request.url === '/images')
    return images.all.map((image) => ({
      ...image,
      creates: pool.all.filter(({ imageId }) => imageId === image.imageId).length,
    }));
  const [, imageId = ''] = /^\/images\/(im-\w+)$/.exec(request.url ?? '') ?? [];
  if (request.method === 'DELETE' && imageId) return { removed: await images.remove(imageId) };
  if (request.method === 'PUT' && request.url === '/faults') {
    board.set(parseFaults(JSON.parse(text)));
    return board.faults;
  }
  const [, name, ending = ''] = /^\/sandboxes\/([\w.-]+)\/(.+)$/.exec(request.url ?? '') ?? [];
  const sandbox = pool.all.find((one) => one.name === name || one.sandboxId === name);
  const status = ENDINGS[ending];
  if (request.method !== 'POST' || !sandbox || status === undefined)
    throw new Error('use GET /sandboxes, PUT /faults or POST /sandboxes/NAME/lost');
  await pool.lose(sandbox.sandboxId, status, 0);
  return {};
}

main().catch((error: Error) => {
  process.stderr.write(`modal emulator: ${error.message}\n`);
  process.exit(1);
});
