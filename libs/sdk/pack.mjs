// Makes the package of the SDK: node libs/sdk/pack.mjs <directory>. One file for `import`, one for
// `require`, types, and no dependencies; then `npm pack` in that directory makes the tarball.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const own = dirname(fileURLToPath(import.meta.url));
const root = resolve(own, '../..');
const [given = join(root, 'dist/sdk-package')] = process.argv.slice(2);
const out = resolve(given);
const { version, license, engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, 'types'), { recursive: true });
const shared = {
  ...{ entryPoints: [join(own, 'src/index.ts')], bundle: true, platform: 'node', target: 'node20' },
  // Faster where they are installed, and not needed.
  external: ['bufferutil', 'utf-8-validate'],
  keepNames: true,
  logLevel: 'warning',
};
await build({ ...shared, format: 'cjs', outfile: join(out, 'index.cjs') });
await build({
  ...{ ...shared, format: 'esm', outfile: join(out, 'index.mjs') },
  // What is bundled asks for Node's own modules by require.
  banner: {
    js: "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);",
  },
});
const types = spawnSync(
  process.execPath,
  [
    join(root, 'node_modules/@typescript/native/bin/tsc'),
    ...['--ignoreConfig', '--declaration', '--emitDeclarationOnly', '--skipLibCheck', '--strict'],
    ...[
      '--target',
      'es2023',
      '--lib',
      'es2023',
      '--module',
      'node20',
      '--moduleDetection',
      'force',
      '--types',
      'node',
    ],
    ...['--rootDir', join(own, 'src'), '--outDir', join(out, 'types'), join(own, 'src/index.ts')],
  ],
  { cwd: root, stdio: 'inherit' },
);
if (types.status !== 0) process.exit(1);
writeFileSync(join(out, 'types/package.json'), '{ "type": "commonjs" }\n');
// The types of `import` are the same, in the other module system.
writeFileSync(join(out, 'index.d.mts'), "export * from './types/index.js';\n");
writeFileSync(join(out, 'index.d.cts'), "export * from './types/index.js';\n");
const entry = (kind) => ({ types: `./index.d.${kind}ts`, default: `./index.${kind}js` });
const manifest = {
  ...{ name: '@vmux/sdk', version, license, engines },
  description:
    'Sessions that outlive their sandboxes: commands, files, terminals, ports and history.',
  ...{ main: './index.cjs', module: './index.mjs', types: './index.d.cts' },
  exports: { '.': { import: entry('m'), require: entry('c') } },
  files: ['index.*', 'types', 'README.md'],
  sideEffects: false,
};
writeFileSync(join(out, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
cpSync(join(root, 'docs/sdk.md'), join(out, 'README.md'));
