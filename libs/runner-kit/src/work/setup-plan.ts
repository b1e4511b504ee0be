import { parse } from 'smol-toml';

/** What was found in a workspace, and the content of the files asked for. */
export interface Workspace {
  readonly path: string;
  /** Of the top level; those of directories end with a slash. */
  readonly names: ReadonlySet<string>;
  /** What was given to the session; the rest is as usual. */
  readonly env: Readonly<Record<string, string>>;
  /** The content of a file of the top level; undefined when there is none, or when it is too large to be one. */
  text(name: string): string | undefined;
  /** Whether a program is on the path of the sandbox. */
  has(tool: string): boolean;
}

export interface Install {
  readonly kind: string;
  /** The file that asks for it. */
  readonly manifest: string;
  /** Lines for the shell, run in the workspace. */
  readonly lines: readonly string[];
  readonly missingTools: readonly string[];
  /** Directories that hold everything it installs. */
  readonly outputs: readonly string[];
  /** Whether the manifests alone say what is installed, and no other file of the workspace. */
  readonly selfContained: boolean;
}

export const MANIFESTS = [
  'pyproject.toml',
  'requirements.txt',
  'package.json',
  'go.mod',
  'Cargo.toml',
] as const;

/** What else decides what is installed. */
export const COMPANIONS = [
  'uv.lock',
  'uv.toml',
  'pip.conf',
  '.python-version',
  'package-lock.json',
  'npm-shrinkwrap.json',
  'pnpm-lock.yaml',
  'pnpm-workspace.yaml',
  '.pnpmfile.cjs',
  'yarn.lock',
  'bun.lock',
  'bun.lockb',
  'bunfig.toml',
  '.npmrc',
  '.yarnrc',
  '.yarnrc.yml',
  'go.sum',
  'Cargo.lock',
] as const;

/** What has to be installed before the work can begin; nothing when nothing asks for anything. */
export function planInstalls(workspace: Workspace): readonly Install[] {
  const plans = [ofPyproject, ofRequirements, ofScripts, ofPackageJson, ofGo, ofCargo];
  return plans.flatMap((plan) => plan(workspace));
}

function ofPyproject(workspace: Workspace): Install[] {
  const text = workspace.text('pyproject.toml');
  if (text === undefined) return [];
  const document = tomlOf(text);
  const base = { kind: 'pyproject', manifest: 'pyproject.toml' };
  if (workspace.names.has('uv.lock') && workspace.has('uv'))
    return [
      { ...base, ...python(workspace, []), lines: ['uv sync --frozen'], selfContained: false },
    ];
  if (document['build-system'] !== undefined)
    return [{ ...base, ...python(workspace, ['-e', '.']), selfContained: false }];
  const dependencies = textsIn(recordIn(document, 'project').dependencies);
  if (dependencies.length === 0) return [];
  return [
    {
      ...base,
      ...python(workspace, dependencies.map(quoted)),
      selfContained: areRemote(dependencies),
    },
  ];
}

function ofRequirements(workspace: Workspace): Install[] {
  const text = workspace.text('requirements.txt');
  if (text === undefined) return [];
  const lines = text.split('\n').map((line) => line.replace(/(^|\s)#.*$/, '').trim());
  const asked = lines.filter((line) => line !== '');
  if (asked.length === 0) return [];
  return [
    {
      kind: 'requirements',
      manifest: 'requirements.txt',
      ...python(workspace, ['-r', 'requirements.txt']),
      selfContained:
        areRemote(asked) &&
        !asked.some((line) => /^-(?!-hash|-index-url|-extra-index-url|i\b)/.test(line)),
    },
  ];
}

const HEADER = /^# \/\/\/ script[ \t]*\r?\n((?:^#(?:| .*)\r?\n)+?)^# \/\/\/[ \t]*\r?$/m;

/** Scripts of the top level that say in their header what they need (PEP 723). */
function ofScripts(workspace: Workspace): Install[] {
  const scripts = [...workspace.names].filter((name) => name.endsWith('.py')).sort();
  return scripts.flatMap((name) => {
    const block = HEADER.exec(workspace.text(name) ?? '')?.[1];
    if (block === undefined) return [];
    const toml = block.replace(/^# ?/gm, '');
    const dependencies = textsIn(tomlOf(toml).dependencies);
    if (dependencies.length === 0) return [];
    const install = python(workspace, dependencies.map(quoted));
    return [{ kind: 'script', manifest: name, ...install, selfContained: areRemote(dependencies) }];
  });
}

/** Into an environment of the workspace's own: a distribution's Python is not for installing into. */
function python(
  workspace: Workspace,
  wanted: readonly string[],
): Pick<Install, 'lines' | 'missingTools' | 'outputs'> {
  const outputs = [`${workspace.path}/.venv`];
  const what = wanted.join(' ');
  if (workspace.has('uv')) {
    const lines = ['[ -e .venv ] || uv venv .venv', `uv pip install --python .venv ${what}`];
    return { lines, missingTools: [], outputs };
  }
  const pip = ['pip3', 'pip'].find((name) => workspace.has(name));
  return {
    lines: [
      '[ -e .venv ] || python3 -m venv --without-pip .venv',
      `${pip} --python .venv/bin/python install --disable-pip-version-check ${what}`,
    ],
    missingTools: [...(workspace.has('python3') ? [] : ['python3']), ...(pip ? [] : ['pip'])],
    outputs,
  };
}

function ofPackageJson(workspace: Workspace): Install[] {
  const text = workspace.text('package.json');
  if (text === undefined) return [];
  const document = jsonOf(text);
  const fields = ['dependencies', 'devDependencies', 'optionalDependencies'];
  const wanted = fields.flatMap((field) => Object.values(recordIn(document, field)).map(String));
  const hasWorkspaces =
    document.workspaces !== undefined || workspace.names.has('pnpm-workspace.yaml');
  if (wanted.length === 0 && !hasWorkspaces) return [];
  const [tool, line] = packageManager(workspace, String(document.packageManager ?? ''));
  return [
    {
      kind: tool,
      manifest: 'package.json',
      lines: [line],
      missingTools: [
        ...(workspace.has('node') || tool === 'bun' ? [] : ['node']),
        ...(workspace.has(tool) ? [] : [tool]),
      ],
      outputs: [`${workspace.path}/node_modules`],
      selfContained:
        !hasWorkspaces &&
        !runsScripts(document) &&
        !workspace.names.has('.yarn/') &&
        !workspace.names.has('patches/') &&
        wanted.every((version) => !/^(file|link|portal|workspace|\.|\/)/.test(version)),
    },
  ];
}

/** Scripts of its own that run on install may do anything with the workspace. */
const runsScripts = (document: Fields): boolean =>
  ['preinstall', 'install', 'postinstall', 'prepare'].some(
    (name) => name in recordIn(document, 'scripts'),
  );

/** By its lock file; without one by what the manifest names. */
function packageManager({ names }: Workspace, named: string): readonly [string, string] {
  if (names.has('pnpm-lock.yaml')) return ['pnpm', 'pnpm install --frozen-lockfile'];
  if (names.has('yarn.lock'))
    return [
      'yarn',
      names.has('.yarnrc.yml') ? 'yarn install --immutable' : 'yarn install --frozen-lockfile',
    ];
  if (names.has('bun.lock') || names.has('bun.lockb'))
    return ['bun', 'bun install --frozen-lockfile'];
  if (names.has('package-lock.json') || names.has('npm-shrinkwrap.json'))
    return ['npm', 'npm ci --no-audit --no-fund'];
  const tool = /^(pnpm|yarn|bun)@/.exec(named)?.[1];
  if (tool) return [tool, `${tool} install`];
  return ['npm', 'npm install --no-audit --no-fund'];
}

function ofGo(workspace: Workspace): Install[] {
  const text = workspace.text('go.mod');
  if (text === undefined || !/^\s*require\b/m.test(text)) return [];
  return [
    {
      kind: 'go',
      manifest: 'go.mod',
      lines: ['go mod download'],
      missingTools: workspace.has('go') ? [] : ['go'],
      outputs: [modulesOf(workspace)],
      selfContained: !/=>\s*\.{0,2}\//.test(text) && !workspace.names.has('go.work'),
    },
  ];
}

function modulesOf({ env }: Workspace): string {
  const [path] = (env.GOPATH ?? '').split(':');
  return env.GOMODCACHE || `${path || `${homeOf(env)}/go`}/pkg/mod`;
}

const homeOf = (env: Workspace['env']): string => env.HOME || '/root';

function ofCargo(workspace: Workspace): Install[] {
  const text = workspace.text('Cargo.toml');
  if (text === undefined) return [];
  const document = tomlOf(text);
  const fields = ['dependencies', 'dev-dependencies', 'build-dependencies', 'workspace'];
  if (fields.every((field) => Object.keys(recordIn(document, field)).length === 0)) return [];
  const locked = workspace.names.has('Cargo.lock') ? ' --locked' : '';
  return [
    {
      kind: 'cargo',
      manifest: 'Cargo.toml',
      lines: [`cargo fetch${locked}`],
      missingTools: workspace.has('cargo') ? [] : ['cargo'],
      outputs: ['registry', 'git'].map(
        (name) => `${workspace.env.CARGO_HOME || `${homeOf(workspace.env)}/.cargo`}/${name}`,
      ),
      // Its settings may name other sources.
      selfContained:
        document.workspace === undefined &&
        !/\bpath\s*=/.test(text) &&
        !workspace.names.has('.cargo/'),
    },
  ];
}

type Fields = Readonly<Record<string, unknown>>;

/** A manifest that cannot be read asks for nothing by itself: its tool will say what is wrong with it. */
const tomlOf = (text: string): Fields => attempt(() => parse(text) as Fields);
const jsonOf = (text: string): Fields => attempt(() => recordOf(JSON.parse(text)));

function attempt(read: () => Fields): Fields {
  try {
    return read();
  } catch {
    return {};
  }
}

const recordOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const recordIn = (fields: Fields, name: string): Fields => recordOf(fields[name]);
const textsIn = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each) => typeof each === 'string') : [];

const areRemote = (requirements: readonly string[]): boolean =>
  requirements.every((each) => !/(^|\s|@\s*)(\.{0,2}\/|file:)/.test(each));

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
