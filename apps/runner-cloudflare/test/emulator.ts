import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import {
  projectRoot,
  type RunningProcess,
  releaseLater,
  startProcess,
  whenThisProcessDies,
} from '@vmux/testing';

export interface TestEmulator {
  readonly url: string;
  readonly key: string;
  readonly keyFile: string;
  readonly dir: string;
  /** Does to a sandbox what happens to one at Cloudflare: `kill`, `replace`, `evict`, `cut`, … */
  control(verb: string, id?: SandboxId, number?: number): Promise<string>;
  process(): RunningProcess<unknown>;
  /** Kills the emulator and starts it again on the same data and port. */
  restart(): Promise<void>;
}

const native = join(projectRoot(), 'dist/native');
export const isRoot = process.platform === 'linux' && process.getuid?.() === 0;

/** The emulator as a process of its own; what it leaves is ended and removed, however the test ends. */
export async function startTestEmulator(env: NodeJS.ProcessEnv = {}): Promise<TestEmulator> {
  const dir = mkdtempSync('/tmp/vmux-cf-');
  const cgroupParent = `vmux-cf-${randomBytes(4).toString('hex')}`;
  const launcher = join(native, 'vmux-ns');
  const destroyAll = `for d in "$0"/data/ns/s/*; do [ -d "$d" ] && '${launcher}' destroy --dir="$d" --name="s-\${d##*/}" --cgroup-parent='${cgroupParent}'; done`;
  const callOff = whenThisProcessDies(`sleep 1; ${destroyAll}; rm -rf -- "$0"`, dir);
  releaseLater(() => {
    execFileSync('sh', ['-c', `${destroyAll}; true`, dir], { stdio: 'ignore' });
    rmSync(dir, { recursive: true, force: true });
    callOff();
  });
  const key = randomBytes(32).toString('hex');
  const keyFile = join(dir, 'key');
  writeFileSync(keyFile, key, { mode: 0o600 });
  const start = (port: string) =>
    startProcess({
      command: process.execPath,
      args: [join(projectRoot(), 'dist/emulators/cloudflare/src/main.js')],
      env: {
        PATH: process.env.PATH,
        VMUX_EMULATOR_DIR: join(dir, 'data'),
        VMUX_EMULATOR_PORT: port,
        VMUX_EMULATOR_CGROUP: cgroupParent,
        CLOUDFLARE_WORKER_KEY_FILE: keyFile,
        ...env,
      },
      ready: (line) =>
        line.startsWith('{"ready":true') ? (JSON.parse(line) as { url: string }) : undefined,
      readyTimeoutMs: 60_000,
    });
  let running = await start('0');
  const { url } = running.ready;
  const control: TestEmulator['control'] = async (verb, id, number) => {
    const file = join(dir, 'data/control.json');
    if (!existsSync(file)) throw new Error('the emulator is not up');
    const access: { url: string; token: string } = JSON.parse(readFileSync(file, 'utf8'));
    const name = id ? [id.sessionId, id.epoch, id.instance, number ?? ''] : [];
    const answer = await fetch(`${access.url}/control/${[verb, ...name].join('/')}`, {
      headers: { 'x-vmux-stand-in': access.token },
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${verb}: ${text}`);
    return (JSON.parse(text) as { said?: string }).said ?? '';
  };
  return {
    url,
    key,
    keyFile,
    dir,
    control,
    process: () => running,
    restart: async () => {
      await running.kill('SIGKILL');
      running = await start(new URL(url).port);
    },
  };
}
