import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { startEmulator } from './emulator';

/** Cloudflare's part, emulated on this machine; says where it serves in one line of JSON. */
async function main(): Promise<void> {
  process.umask(0o077);
  const { env } = process;
  const dist = resolve(__dirname, '../../..');
  if (!env.VMUX_EMULATOR_DIR) throw new Error('set VMUX_EMULATOR_DIR to where it keeps its data');
  if (!env.CLOUDFLARE_WORKER_KEY_FILE)
    throw new Error('set CLOUDFLARE_WORKER_KEY_FILE to a file with the key that runners sign with');
  const emulator = await startEmulator({
    root: resolve(dist, '..'),
    dataDir: resolve(env.VMUX_EMULATOR_DIR),
    nativeDir: env.VMUX_NATIVE_DIR || join(dist, 'native'),
    port: Number(env.VMUX_EMULATOR_PORT || 0),
    // Without a key the Worker is closed, as one is that was deployed and never given its secret.
    key: env.VMUX_EMULATOR_NO_KEY
      ? null
      : readFileSync(env.CLOUDFLARE_WORKER_KEY_FILE, 'utf8').trim(),
    cgroupParent: env.VMUX_EMULATOR_CGROUP,
    sleepAfter: env.VMUX_SLEEP_AFTER,
    slowStartMs: env.VMUX_EMULATOR_SLOW_START_MS,
    leakedAfterMinutes: env.VMUX_LEAKED_AFTER_MINUTES,
  });
  let stopping = false;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (stopping) return;
      stopping = true;
      emulator.close().then(
        () => process.exit(0),
        (fault) => {
          process.stderr.write(`cloudflare emulator: ${fault}\n`);
          process.exit(1);
        },
      );
    });
  }
  process.stdout.write(`${JSON.stringify({ ready: true, url: emulator.url, emulated: true })}\n`);
}

main().catch((fault: Error) => {
  process.stderr.write(`cloudflare emulator: ${fault.message}\n`);
  process.exit(1);
});
