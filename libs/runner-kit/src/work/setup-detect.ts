import { createHash } from 'node:crypto';
import type { OrderNamed, SetupFound } from '@vmux/events';
import { SupervisorRefused } from '../errors';
import type { SupervisorFiles } from '../supervisor-files';
import { defaultPath } from './exec-facts';
import { COMPANIONS, type Install, MANIFESTS, planInstalls, type Workspace } from './setup-plan';

export interface DetectedSetup {
  readonly found: SetupFound;
  /** Directories that hold what is installed. */
  readonly outputs: readonly string[];
  /** The same for every session that would install the same; null when that cannot be told. */
  readonly cacheKey: string | null;
}

const MAX_NAMES = 10_000;
const MAX_SCRIPTS = 64;
const MAX_MANIFEST_BYTES = 1024 * 1024;
const MAX_LOCK_BYTES = 64 * 1024 * 1024;
const TOOLS = ['uv', 'python3', 'pip3', 'pip', 'node', 'npm', 'pnpm', 'yarn', 'bun', 'go', 'cargo'];

const SYSTEM_CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';
/** Node, uv and pip bring authorities of their own: who is trusted by the system is trusted by them too. */
const TRUST = [
  `if [ -r ${SYSTEM_CERTIFICATES} ]; then`,
  ...['NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE', 'PIP_CERT'].map(
    (name) => `export ${name}="\${${name}:-${SYSTEM_CERTIFICATES}}"`,
  ),
  'fi',
].join('\n');

/** Looks at the top level of a new sandbox's workspace, through its supervisor, before anything has run. */
export async function detectSetup(
  files: SupervisorFiles,
  { data }: OrderNamed<'CreateSandbox'>,
  path: string,
  signal: AbortSignal,
): Promise<DetectedSetup | undefined> {
  if (data.spec.setup !== 'auto' || data.spec.bundle === null) return undefined;
  const names = await namesIn(files, path, signal);
  const scripts = [...names].filter((name) => name.endsWith('.py')).sort();
  const texts = new Map<string, string>();
  for (const name of [...MANIFESTS, ...scripts.slice(0, MAX_SCRIPTS)]) {
    if (!names.has(name)) continue;
    const content = await contentOf(files, `${path}/${name}`, MAX_MANIFEST_BYTES, signal);
    if (content) texts.set(name, content.toString());
  }
  const tools = await toolsOn(files, data.env.PATH ?? defaultPath, signal);
  const workspace: Workspace = {
    path,
    names,
    env: data.env,
    text: (name) => texts.get(name),
    has: (tool) => tools.has(tool),
  };
  const installs = planInstalls(workspace);
  if (installs.length === 0) return undefined;
  const digests = await digestsOf(files, path, names, installs, signal);
  const lines = installs.flatMap((install) => install.lines);
  const command = { kind: 'shell' as const, line: [TRUST, 'set -ex', ...lines].join('\n') };
  return {
    found: {
      manifests: installs.map(({ kind, manifest }) => ({
        kind,
        path: manifest,
        digest: digests.get(manifest) ?? null,
      })),
      missingTools: [...new Set(installs.flatMap((install) => install.missingTools))],
      command,
    },
    outputs: [...new Set(installs.flatMap((install) => install.outputs))],
    cacheKey: cacheKeyOf(data, path, command.line, installs, digests),
  };
}

/** Of the environment: where package managers look for what to install, and how. */
const DECIDES =
  /^(PATH|HOME|NODE_ENV|NODE_OPTIONS|VIRTUAL_ENV|CC|CXX|(PIP|UV|PYTHON|NPM|PNPM|YARN|BUN|GO|CGO|CARGO|RUST)[A-Z0-9_]*|npm_config_.*)$/i;

/** One owner's sandboxes never get what another's installed. */
function cacheKeyOf(
  { owner, provider, image, spec, env }: OrderNamed<'CreateSandbox'>['data'],
  path: string,
  line: string,
  installs: readonly Install[],
  digests: ReadonlyMap<string, string>,
): string | null {
  if (owner === undefined) return null;
  const rest = installs.every(({ selfContained }) => selfContained) ? null : spec.bundle;
  const told = Object.entries(env).filter(([name]) => DECIDES.test(name));
  const key = [2, owner, provider, image, path, line, [...digests].sort(), rest, told.sort()];
  return createHash('sha256').update(JSON.stringify(key)).digest('hex');
}

async function namesIn(
  files: SupervisorFiles,
  path: string,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  for await (const { name, type } of files.list(path, { signal })) {
    if (type === 'file' || type === 'link') names.add(name.toString());
    if (type === 'directory') names.add(`${name}/`);
    if (names.size >= MAX_NAMES) break;
  }
  return names;
}

async function digestsOf(
  files: SupervisorFiles,
  path: string,
  names: ReadonlySet<string>,
  installs: readonly Install[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const digests = new Map<string, string>();
  for (const name of new Set([...installs.map(({ manifest }) => manifest), ...COMPANIONS])) {
    if (!names.has(name)) continue;
    const content = await contentOf(files, `${path}/${name}`, MAX_LOCK_BYTES, signal);
    if (content) digests.set(name, createHash('sha256').update(content).digest('hex'));
  }
  return digests;
}

/** Undefined for what is larger than the bound, or no file that can be read. */
async function contentOf(
  files: SupervisorFiles,
  path: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of files.read(path, { length: maxBytes + 1, signal })) {
      parts.push(part);
      bytes += part.length;
    }
  } catch (error) {
    if (error instanceof SupervisorRefused) return undefined;
    throw error;
  }
  return bytes > maxBytes ? undefined : Buffer.concat(parts);
}

async function toolsOn(
  files: SupervisorFiles,
  path: string,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const directories = path.split(':').filter((each) => each.startsWith('/'));
  const found = await Promise.all(
    TOOLS.flatMap((tool) =>
      directories.slice(0, 32).map(async (directory) => {
        try {
          const { type, mode } = await files.stat(`${directory}/${tool}`, {
            followLink: true,
            signal,
          });
          return type === 'file' && (mode & 0o111) !== 0 ? tool : undefined;
        } catch (error) {
          if (error instanceof SupervisorRefused) return undefined;
          throw error;
        }
      }),
    ),
  );
  return new Set(found.filter((tool) => tool !== undefined));
}
