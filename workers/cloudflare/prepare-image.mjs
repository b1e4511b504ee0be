// Puts into image/ what the Dockerfile copies: the program that a container starts with, as one file, and
// the supervisor, which is static.
import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const image = resolve(process.argv[2] ?? join(here, 'image'));
const supervisor = join(root, 'dist/native/vmux-supervisor');
if (!existsSync(supervisor)) {
  console.error('the supervisor is not built: run npm run build in the repository first');
  process.exit(1);
}
mkdirSync(image, { recursive: true });
copyFileSync(supervisor, join(image, 'vmux-supervisor'));
await build({
  entryPoints: [join(here, 'container/main.ts')],
  outfile: join(image, 'entry.js'),
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  tsconfig: join(root, 'tsconfig.json'),
  // Optional native helpers of ws; it does without.
  external: ['bufferutil', 'utf-8-validate'],
  logLevel: 'error',
});
console.log(`the image's files are in ${image}`);
