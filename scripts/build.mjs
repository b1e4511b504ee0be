// Compiles every .ts file of the trees below into dist/, keeping the layout, and the programs below
// native/. Files are replaced by rename: a process that starts during a build never reads half a file.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildNative } from './build-native.mjs';

const require = createRequire(import.meta.url);
const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const trees = ['apps', 'libs', 'workers', 'emulators', 'bench', 'test'];

export async function build() {
  const { transform } = require('@swc/core');
  const options = withAliases(require('./swc.cjs'));
  const sources = trees.flatMap((tree) => typescriptBelow(tree));
  const wanted = new Set(sources.map(outputOf));
  for (const stale of filesBelow('dist').filter(
    (file) => file.endsWith('.js') && !wanted.has(file),
  )) {
    rmSync(join(root, stale), { force: true });
  }
  await Promise.all(
    sources.map(async (source) => {
      const text = readFileSync(join(root, source), 'utf8');
      const { code } = await transform(text, { ...options, filename: join(root, source) });
      replace(join(root, outputOf(source)), code);
    }),
  );
  buildNative();
}

function withAliases(options) {
  const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'));
  return { ...options, jsc: { ...options.jsc, baseUrl: root, paths: compilerOptions.paths } };
}

const outputOf = (source) => join('dist', source.replace(/\.ts$/, '.js'));
const typescriptBelow = (tree) =>
  filesBelow(tree).filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'));

function filesBelow(tree) {
  if (!existsSync(join(root, tree))) return [];
  return readdirSync(join(root, tree), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .filter((file) => !file.includes('node_modules'));
}

function replace(file, text) {
  if (existsSync(file) && readFileSync(file, 'utf8') === text) return;
  mkdirSync(dirname(file), { recursive: true });
  const draft = `${file}.${process.pid}.tmp`;
  writeFileSync(draft, text);
  renameSync(draft, file);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await build();
