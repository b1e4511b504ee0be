import { planInstalls, type Workspace } from '../src/work/setup-plan';

const ALL = ['uv', 'python3', 'pip3', 'node', 'npm', 'pnpm', 'yarn', 'bun', 'go', 'cargo'];

const plan = (
  files: Readonly<Record<string, string>>,
  tools: readonly string[] = ALL,
  env: Readonly<Record<string, string>> = {},
) => {
  const workspace: Workspace = {
    path: '/workspace',
    env,
    names: new Set(Object.keys(files)),
    text: (name) => files[name],
    has: (tool) => tools.includes(tool),
  };
  return planInstalls(workspace);
};
const linesOf = (files: Readonly<Record<string, string>>, tools = ALL) =>
  plan(files, tools).flatMap(({ lines }) => lines);
const withoutUv = ALL.filter((tool) => tool !== 'uv');
const dependent = JSON.stringify({ dependencies: { ms: '2.1.3' } });

describe('What is installed', () => {
  it('is nothing where nothing asks for it', () => {
    expect(plan({})).toEqual([]);
    expect(plan({ 'package.json': '{"name":"x"}', 'main.go': '', 'go.mod': 'module x' })).toEqual(
      [],
    );
    expect(plan({ 'requirements.txt': '# later\n\n' })).toEqual([]);
    expect(plan({ 'pyproject.toml': '[tool.ruff]\nline-length = 100\n' })).toEqual([]);
    expect(plan({ 'Cargo.toml': '[package]\nname = "x"\n' })).toEqual([]);
  });

  it.each([
    ['package-lock.json', 'npm', 'npm ci --no-audit --no-fund'],
    ['pnpm-lock.yaml', 'pnpm', 'pnpm install --frozen-lockfile'],
    ['yarn.lock', 'yarn', 'yarn install --frozen-lockfile'],
    ['bun.lock', 'bun', 'bun install --frozen-lockfile'],
    ['bun.lockb', 'bun', 'bun install --frozen-lockfile'],
    ['README.md', 'npm', 'npm install --no-audit --no-fund'],
  ])('for package.json beside %s is up to %s', (lock, kind, line) => {
    expect(plan({ 'package.json': dependent, [lock]: '' })).toMatchObject([
      {
        kind,
        manifest: 'package.json',
        lines: [line],
        missingTools: [],
        outputs: ['/workspace/node_modules'],
      },
    ]);
  });

  it('for package.json without a lock is up to the manager it names', () => {
    const named = JSON.stringify({ dependencies: { ms: '2' }, packageManager: 'pnpm@9.1.0' });
    expect(linesOf({ 'package.json': named })).toEqual(['pnpm install']);
  });

  it('goes into an environment of the workspace, by uv where there is one, else by pip', () => {
    const files = { 'requirements.txt': 'requests==2.32.0\n' };
    expect(linesOf(files)).toEqual([
      '[ -e .venv ] || uv venv .venv',
      'uv pip install --python .venv -r requirements.txt',
    ]);
    expect(linesOf(files, withoutUv)).toEqual([
      '[ -e .venv ] || python3 -m venv --without-pip .venv',
      'pip3 --python .venv/bin/python install --disable-pip-version-check -r requirements.txt',
    ]);
  });

  it('for pyproject.toml is the project where it can be built, else what it depends on', () => {
    const project = '[project]\nname = "x"\ndependencies = ["rich>=13", "it\'s"]\n';
    expect(linesOf({ 'pyproject.toml': project }, withoutUv).at(-1)).toMatch(
      / install --disable-pip-version-check 'rich>=13' 'it'\\''s'$/,
    );
    const built = `${project}[build-system]\nrequires = ["setuptools"]\n`;
    expect(linesOf({ 'pyproject.toml': built }, withoutUv).at(-1)).toMatch(/ -e \.$/);
    expect(linesOf({ 'pyproject.toml': project, 'uv.lock': '' })).toEqual(['uv sync --frozen']);
  });

  it('for a script is what its header names', () => {
    const script = [
      '#!/usr/bin/env python3',
      '# /// script',
      '# requires-python = ">=3.11"',
      '# dependencies = [',
      '#   "httpx<1",',
      '#   "rich",',
      '# ]',
      '# ///',
      'import httpx',
      '',
    ].join('\n');
    expect(plan({ 'main.py': script, 'other.py': 'print(1)\n' })).toMatchObject([
      { kind: 'script', manifest: 'main.py', selfContained: true },
    ]);
    expect(linesOf({ 'main.py': script }).at(-1)).toBe(
      "uv pip install --python .venv 'httpx<1' 'rich'",
    );
    expect(plan({ 'main.py': '# /// script\n# dependencies = ["x"\n' })).toEqual([]);
  });

  it('for Go and Rust is what their manifests require', () => {
    expect(linesOf({ 'go.mod': 'module x\n\nrequire example.com/y v1.0.0\n' })).toEqual([
      'go mod download',
    ]);
    const cargo = '[package]\nname = "x"\n[dependencies]\nserde = "1"\n';
    expect(linesOf({ 'Cargo.toml': cargo })).toEqual(['cargo fetch']);
    expect(linesOf({ 'Cargo.toml': cargo, 'Cargo.lock': '' })).toEqual(['cargo fetch --locked']);
  });

  it('for Go and Rust goes where the environment says', () => {
    const files = {
      'go.mod': 'module x\nrequire y v1\n',
      'Cargo.toml': '[package]\nname = "x"\n[dependencies]\nserde = "1"\n',
    };
    const outputs = (env: Readonly<Record<string, string>>) =>
      plan(files, ALL, env).flatMap((install) => install.outputs);
    expect(outputs({})).toEqual(['/root/go/pkg/mod', '/root/.cargo/registry', '/root/.cargo/git']);
    expect(outputs({ GOPATH: '/go:/other', CARGO_HOME: '/cargo' })).toEqual([
      '/go/pkg/mod',
      '/cargo/registry',
      '/cargo/git',
    ]);
    expect(outputs({ GOMODCACHE: '/modules', HOME: '/home/me' })).toEqual([
      '/modules',
      '/home/me/.cargo/registry',
      '/home/me/.cargo/git',
    ]);
  });

  it('needs tools, which are named when they are not there', () => {
    const files = {
      'package.json': dependent,
      'pnpm-lock.yaml': '',
      'requirements.txt': 'x\n',
      'go.mod': 'module x\nrequire y v1\n',
    };
    const missing = plan(files, ['node']).flatMap(({ missingTools }) => missingTools);
    expect(missing).toEqual(['python3', 'pip', 'pnpm', 'go']);
  });

  it('depends on the manifests alone unless they point into the workspace', () => {
    const contained = (files: Readonly<Record<string, string>>) =>
      plan(files).map(({ selfContained }) => selfContained);
    expect(
      contained({ 'requirements.txt': 'a==1 --hash=sha256:00\n--index-url https://x/\n' }),
    ).toEqual([true]);
    expect(contained({ 'requirements.txt': './wheels/a.whl\n' })).toEqual([false]);
    expect(contained({ 'requirements.txt': '-r more.txt\n' })).toEqual([false]);
    expect(contained({ 'requirements.txt': 'a @ file:///x\n' })).toEqual([false]);
    expect(contained({ 'package.json': dependent })).toEqual([true]);
    expect(contained({ 'package.json': '{"dependencies":{"a":"file:./a"}}' })).toEqual([false]);
    expect(
      contained({ 'package.json': '{"dependencies":{"a":"1"},"scripts":{"postinstall":"x"}}' }),
    ).toEqual([false]);
    const cargo = '[package]\nname = "x"\n[dependencies]\nserde = "1"\n';
    expect(contained({ 'Cargo.toml': cargo })).toEqual([true]);
    expect(contained({ 'Cargo.toml': cargo, '.cargo/': '' })).toEqual([false]);
    expect(contained({ 'go.mod': 'module x\nrequire y v1\nreplace y => ../y\n' })).toEqual([false]);
  });

  it('is nothing for a manifest that cannot be read', () => {
    expect(plan({ 'package.json': '{', 'pyproject.toml': '[', 'Cargo.toml': '=' })).toEqual([]);
  });
});
