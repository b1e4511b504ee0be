import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeUnless, releaseAll, skipUnless, temporaryDirectory } from '@vmux/testing';
import { EmbeddedStack } from '../support/embedded-stack';
import { fetchedTool, whyNoProgram } from '../support/fetched-tools';
import { type Baggage, type Files, Setups } from '../support/setups';

const isRoot = process.getuid?.() === 0;
const SYSTEM_PATH = '/usr/local/bin:/usr/bin:/bin';
const PATH = `/workspace/tools/bin:/workspace/node_modules/.bin:${SYSTEM_PATH}`;

interface Case {
  readonly manifest: string;
  readonly kind: string;
  readonly whyNot: string | null;
  readonly files: Files;
  readonly baggage?: Baggage;
  readonly env?: Readonly<Record<string, string>>;
  /** Says `near` or `installed` when what it needs is there, without fetching anything. */
  readonly command: string;
  readonly log: RegExp;
}

/** Runs in the bundle before it is packed, with a home of its own. */
function inside(directory: string, env: Readonly<Record<string, string>>, ...argv: string[]): void {
  const home = temporaryDirectory('home');
  const [program = '', ...args] = argv;
  const own = { PATH: SYSTEM_PATH, HOME: home, ...env };
  execFileSync(program, args, { cwd: directory, env: own, stdio: 'pipe', timeout: 60_000 });
}

const NEAR: Files = {
  'package.json': '{"name":"app","version":"1.0.0","dependencies":{"near":"file:./near"}}',
  'near/package.json': '{"name":"near","version":"1.0.0","bin":"cli.js"}',
  'near/cli.js': '#!/usr/bin/env node\nconsole.log("near")\n',
};

function nodeCase(kind: string, packaged: string, program: string, lock: string[], log: RegExp) {
  const { directory, whyNot } = fetchedTool(kind, packaged, program);
  const finish = (bundle: string) => {
    inside(bundle, {}, join(directory, 'bin', kind), ...lock);
    rmSync(join(bundle, 'node_modules'), { recursive: true, force: true });
  };
  const baggage = { tools: directory, finish };
  const told = { manifest: 'package.json', kind, whyNot, files: NEAR, baggage };
  return { ...told, env: { PATH }, command: 'near', log };
}

const bunPackage = `@oven/bun-linux-${process.arch === 'arm64' ? 'aarch64' : 'x64'}`;

const GO_PROXY = `import sys, zipfile, os
at = sys.argv[1] + '/proxy/example.com/near/@v/'
os.makedirs(at)
mod = 'module example.com/near\\n\\ngo 1.19\\n'
open(at + 'list', 'w').write('v1.0.0\\n')
open(at + 'v1.0.0.info', 'w').write('{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}')
open(at + 'v1.0.0.mod', 'w').write(mod)
with zipfile.ZipFile(at + 'v1.0.0.zip', 'w') as z:
    z.writestr('example.com/near@v1.0.0/go.mod', mod)
    z.writestr('example.com/near@v1.0.0/near.go', 'package near\\n\\nconst Word = "near"\\n')
`;

const goCase: Case = {
  ...{ manifest: 'go.mod', kind: 'go', whyNot: whyNoProgram('go', 'python3') },
  files: {
    'go.mod': 'module app\n\ngo 1.19\n\nrequire example.com/near v1.0.0\n',
    'main.go':
      'package main\n\nimport (\n\t"fmt"\n\n\t"example.com/near"\n)\n\nfunc main() { fmt.Println(near.Word) }\n',
  },
  baggage: {
    finish: (bundle) => {
      inside(bundle, {}, 'python3', '-c', GO_PROXY, bundle);
      const env = { GOPROXY: `file://${bundle}/proxy`, GOSUMDB: 'off', GOFLAGS: '-modcacherw' };
      inside(bundle, env, 'go', 'mod', 'tidy');
    },
  },
  env: { GOPROXY: 'file:///workspace/proxy', GOSUMDB: 'off' },
  command: 'GOPROXY=off go run .',
  log: /\+ go mod download/,
};

/** A registry in a directory, of one crate. */
function cargoRegistry(bundle: string): void {
  const crate = join(temporaryDirectory('crate'), 'near-1.0.0');
  mkdirSync(join(crate, 'src'), { recursive: true });
  writeFileSync(
    join(crate, 'Cargo.toml'),
    '[package]\nname = "near"\nversion = "1.0.0"\nedition = "2021"\n',
  );
  writeFileSync(join(crate, 'src/lib.rs'), 'pub const WORD: &str = "near";\n');
  const registry = join(bundle, 'registry');
  mkdirSync(join(registry, 'index/ne/ar'), { recursive: true });
  const file = join(registry, 'near-1.0.0.crate');
  execFileSync('tar', ['-C', join(crate, '..'), '-czf', file, 'near-1.0.0']);
  const cksum = createHash('sha256').update(readFileSync(file)).digest('hex');
  const line = { name: 'near', vers: '1.0.0', deps: [], cksum, features: {}, yanked: false };
  writeFileSync(join(registry, 'index/ne/ar/near'), `${JSON.stringify(line)}\n`);
  inside(bundle, {}, '/usr/bin/cargo', 'generate-lockfile', '--offline');
}

const cargoCase: Case = {
  ...{ manifest: 'Cargo.toml', kind: 'cargo', whyNot: whyNoProgram('cargo', 'rustc', 'cc') },
  files: {
    'Cargo.toml':
      '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n\n[dependencies]\nnear = "1.0.0"\n',
    'src/main.rs': 'fn main() { println!("{}", near::WORD) }\n',
    '.cargo/config.toml':
      '[source.crates-io]\nreplace-with = "here"\n\n[source.here]\nlocal-registry = "registry"\n',
  },
  baggage: { finish: cargoRegistry },
  command: 'cargo run --offline --quiet',
  log: /\+ cargo fetch --locked/,
};

const WHEEL = 'tiny @ file:///workspace/wheels/tiny-1.0-py3-none-any.whl';
const TINY = "python3 -c 'import tiny; print(tiny.word)'";

/** Builds itself, so that nothing has to be fetched for it. */
const BACKEND = `import zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = 'tiny-1.0-py3-none-any.whl'
    meta = 'tiny-1.0.dist-info/'
    with zipfile.ZipFile(directory + '/' + name, 'w') as wheel:
        wheel.writestr('tiny.pth', '/workspace/source\\n')
        wheel.writestr(meta + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
        wheel.writestr(meta + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr(meta + 'RECORD', '')
    return name
build_wheel = build_editable
`;

const python = { whyNot: whyNoProgram('python3', 'pip3'), baggage: { wheel: true } };

const CASES: readonly Case[] = [
  nodeCase('pnpm', 'pnpm@9.15.9', 'pnpm/bin/pnpm.cjs', ['install', '--lockfile-only'], /near/),
  nodeCase('yarn', 'yarn@1.22.22', 'yarn/bin/yarn.js', ['install'], /Done in/),
  nodeCase('bun', `${bunPackage}@1.2.23`, `${bunPackage}/bin/bun`, ['install'], /installed/),
  goCase,
  cargoCase,
  {
    ...{ ...python, manifest: 'main.py', kind: 'script', command: 'python3 main.py' },
    files: {
      'main.py': `# /// script\n# dependencies = ["${WHEEL}"]\n# ///\nimport tiny\nprint(tiny.word)\n`,
    },
    log: /Successfully installed tiny-1\.0/,
  },
  {
    ...{ ...python, manifest: 'pyproject.toml', kind: 'pyproject', command: TINY },
    files: { 'pyproject.toml': `[project]\nname = "app"\ndependencies = ["${WHEEL}"]\n` },
    log: /Successfully installed tiny-1\.0/,
  },
];

const title = (of: Case) => `installs what ${of.manifest} asks for by ${of.kind}`;

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('set-up with', () => {
  let stack: EmbeddedStack;
  let setups: Setups;

  beforeAll(async () => {
    stack = await EmbeddedStack.start();
    setups = new Setups(stack.api);
  }, 90_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 90_000);

  /** Installed by an exec of its own in the first session, and taken from there for the second. */
  async function expectInstalled(of: Case): Promise<void> {
    const bundle = await setups.bundle(of.files, of.baggage);
    const word = of.kind === 'script' || of.kind === 'pyproject' ? 'installed\n' : 'near\n';
    const works = { exit: { kind: 'exited', code: 0 }, output: { stdout: { text: word } } };
    const first = await setups.session(bundle, { env: of.env ?? {} });
    const ran = await setups.run(first, of.command);
    const setup = await setups.of(first);
    const log = setup ? await setups.log(first, setup.id) : 'no set-up';
    expect({ ...ran, log }).toMatchObject({ ...works, log: expect.stringMatching(of.log) });
    expect(setup).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expect(await setups.stages(first)).toEqual(
      expect.arrayContaining(['provisioned', 'extracted', 'installed', 'started']),
    );
    const { setup: found } = await setups.detail(first);
    const digest = expect.stringMatching(/^[0-9a-f]{64}$/);
    expect(found).toEqual({
      manifests: [{ kind: of.kind, path: of.manifest, digest }],
      missingTools: [],
    });
    const second = await setups.session(bundle, { env: of.env ?? {} });
    expect(await setups.run(second, of.command)).toMatchObject(works);
    expect(await setups.of(second)).toBeUndefined();
    expect(await setups.stages(second)).toContain('installed');
    expect((await setups.detail(second)).setup).toEqual(found);
    for (const session of [first, second]) await stack.session(session).stop();
  }

  for (const of of CASES)
    skipUnless(of.whyNot === null, of.whyNot ?? '')(title(of), () => expectInstalled(of), 240_000);

  skipUnless(whyNoProgram('uv', 'python3') === null, whyNoProgram('uv', 'python3') ?? '')(
    'installs what requirements.txt asks for by uv',
    () =>
      expectInstalled({
        ...{ manifest: 'requirements.txt', kind: 'requirements', whyNot: null, command: TINY },
        files: { 'requirements.txt': '--no-index\n--find-links ./wheels\ntiny==1.0\n' },
        baggage: { wheel: true },
        log: /\+ uv pip install/,
      }),
    240_000,
  );

  it('installs a project that builds itself, in place', async () => {
    const files = {
      'pyproject.toml':
        '[project]\nname = "tiny"\nversion = "1.0"\n\n[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
      'backend.py': BACKEND,
      'source/tiny.py': 'word = "installed"\n',
    };
    const session = await setups.session(await setups.bundle(files));
    const edited = `${TINY} && echo 'word = "edited"' >source/tiny.py && ${TINY}`;
    expect(await setups.run(session, edited)).toMatchObject({
      output: { stdout: { text: 'installed\nedited\n' } },
    });
    const setup = await setups.of(session);
    expect(await setups.log(session, setup.id)).toMatch(/install .*-e \./);
  }, 240_000);

  it('names every tool that is missing before anything starts', async () => {
    const files = {
      ...{ 'package.json': NEAR['package.json'] ?? '', 'pnpm-lock.yaml': '' },
      'requirements.txt': 'tiny\n',
      'go.mod': goCase.files['go.mod'] ?? '',
      'Cargo.toml': cargoCase.files['Cargo.toml'] ?? '',
    };
    const bundle = await setups.bundle(files);
    const session = await setups.session(bundle, { env: { PATH: '/nowhere' } });
    const missingTools = ['python3', 'pip', 'node', 'pnpm', 'go', 'cargo'];
    expect((await setups.run(session, '/bin/true')).exit).toMatchObject({
      kind: 'not_started',
      reason: 'setup_failed',
      message: expect.stringContaining('pnpm'),
    });
    expect((await setups.detail(session)).setup).toMatchObject({ missingTools });
    expect(await setups.of(session)).toBeUndefined();
  }, 120_000);
});
