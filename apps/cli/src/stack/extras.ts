import { join } from 'node:path';
import type { DataDirectory } from './data-directory';
import { type PartSettings, readyJson } from './part';

/** A provider beside the local one, most of them emulated on this machine: `vmux up --with NAME`. */
export interface Extra {
  /** Of the runner that offers it. */
  readonly runnerId: string;
  start(stack: ExtraContext): Promise<void>;
}

export interface ExtraContext {
  readonly data: DataDirectory;
  /** Where the built programs are. */
  readonly dist: string;
  /** What the runner needs to take part in the stack. */
  readonly runnerEnv: NodeJS.ProcessEnv;
  /** Ports that stay the same when a part is started again. */
  freePort(): Promise<number>;
  start(part: PartSettings): Promise<Readonly<Record<string, unknown>>>;
}

const cloudflareLocal: Extra = {
  runnerId: 'cloudflare',
  start: async ({ data, dist, runnerEnv, freePort, start }) => {
    const program = programOf(dist);
    const key = { CLOUDFLARE_WORKER_KEY_FILE: data.secretFile('cloudflare-worker') };
    const emulator = {
      VMUX_EMULATOR_DIR: data.directory('cloudflare'),
      VMUX_EMULATOR_PORT: String(await freePort()),
      ...key,
    };
    const { url } = await start({
      name: 'cloudflare-emulator',
      ...program('emulators/cloudflare/src/main.js'),
      env: emulator,
    });
    await start(
      cloudflareRunner(data, program, {
        ...runnerEnv,
        CLOUDFLARE_WORKER_URL: String(url),
        ...key,
      }),
    );
  },
};

/** With a Worker of one's own: CLOUDFLARE_WORKER_URL and CLOUDFLARE_WORKER_KEY_FILE say where it is. */
const cloudflare: Extra = {
  runnerId: 'cloudflare',
  start: async ({ data, dist, runnerEnv, start }) => {
    await start(cloudflareRunner(data, programOf(dist), runnerEnv));
  },
};

const cloudflareRunner = (
  data: DataDirectory,
  program: ReturnType<typeof programOf>,
  env: NodeJS.ProcessEnv,
): PartSettings => ({
  name: 'runner-cloudflare',
  ...program('apps/runner-cloudflare/src/main.js'),
  env: {
    ...env,
    VMUX_RUNNER_ID: 'cloudflare',
    VMUX_RUNNER_DIR: data.directory('runner-cloudflare'),
  },
});

const modalLocal: Extra = {
  runnerId: 'modal',
  start: async ({ data, dist, runnerEnv, freePort, start }) => {
    const program = programOf(dist);
    const token = {
      MODAL_TOKEN_ID: 'ak-emulated',
      MODAL_TOKEN_SECRET_FILE: data.secretFile('modal-token'),
    };
    const { url } = await start({
      name: 'modal-emulator',
      ...program('emulators/modal/src/main.js'),
      env: {
        VMUX_MODAL_EMULATOR_DIR: data.directory('modal'),
        VMUX_MODAL_EMULATOR_PORT: String(await freePort()),
        ...token,
      },
    });
    const env = { ...runnerEnv, MODAL_SERVER_URL: String(url), ...token };
    await start(modalRunner(data, program, env));
  },
};

/** With an account: MODAL_TOKEN_ID and MODAL_TOKEN_SECRET are its token. */
const modal: Extra = {
  runnerId: 'modal',
  start: async ({ data, dist, runnerEnv, start }) => {
    await start(modalRunner(data, programOf(dist), runnerEnv));
  },
};

const modalRunner = (
  data: DataDirectory,
  program: ReturnType<typeof programOf>,
  env: NodeJS.ProcessEnv,
): PartSettings => ({
  name: 'runner-modal',
  ...program('apps/runner-modal/src/main.js'),
  env: { ...env, VMUX_RUNNER_ID: 'modal', VMUX_RUNNER_DIR: data.directory('runner-modal') },
});

const programOf = (dist: string) => (path: string) => ({
  command: process.execPath,
  args: [join(dist, path)],
  ready: readyJson,
});

const EXTRAS: Readonly<Record<string, Extra>> = {
  cloudflare,
  'cloudflare-local': cloudflareLocal,
  modal,
  'modal-local': modalLocal,
};

/** By their names, which a comma separates. */
export function extrasNamed(names: string): readonly Extra[] {
  return names
    .split(',')
    .filter((name) => name !== '')
    .map((name) => {
      const extra = Object.hasOwn(EXTRAS, name) ? EXTRAS[name] : undefined;
      if (!extra)
        throw new Error(`nothing is called ${name}: try ${Object.keys(EXTRAS).join(', ')}`);
      return extra;
    });
}
