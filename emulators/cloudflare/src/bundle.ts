import { join } from 'node:path';
import { build, stop } from 'esbuild';

/** The Worker as one module for workerd, out of its sources. */
export async function bundleWorker(root: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [join(root, 'emulators/cloudflare/src/worker.ts')],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'es2022',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    // The vendor's class tells its subclasses apart by name.
    keepNames: true,
    logLevel: 'error',
  });
  // Its own process is needed no longer.
  await stop();
  const [bundle] = outputFiles;
  if (!bundle) throw new Error('esbuild made no bundle of the Worker');
  return bundle.text;
}
