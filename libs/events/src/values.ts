import { checkpointId, execId, instanceId, runnerId, sessionId, sha256Hex } from './ids';
import {
  decimal,
  dictionary,
  flag,
  integer,
  list,
  matching,
  nullable,
  oneOf,
  type Shape,
  type Shaped,
  struct,
  tagged,
  text,
  withOptional,
} from './shape';

/** Milliseconds since 1970. Every time in every message is one. */
export const time = integer(0);
export const milliseconds = integer(0, 10 * 365 * 24 * 3600 * 1000);
export const sha256HexOrNull = nullable(sha256Hex);
export const text512 = text(512, 1);
export const epochNumber = integer(1, 2 ** 31);
export const portNumber = integer(1, 65_535);

export const MAX_KEEP_MS = 168 * 3600 * 1000;

const variableName = matching(/^[A-Za-z_][A-Za-z0-9_]{0,254}$/, 'a variable name');
const withoutNul =
  (max: number, min = 0): Shape<string> =>
  (value, path) =>
    matching(/^[^\0]*$/, 'text without NUL')(text(max, min)(value, path), path);
const path = withoutNul(4096, 1);

/** Names in clear, values sealed under the session's key. This is what events hold. */
export const sealedEnv = struct({
  names: list(variableName, 1000),
  keyId: text(128, 1),
  sealed: matching(/^[A-Za-z0-9+/=_-]{0,262144}$/, 'base64'),
});
export type SealedEnv = Shaped<typeof sealedEnv>;

/** Values in clear: only ever in an order on its way to a runner. */
export const clearEnv = dictionary(variableName, withoutNul(131_072), 1000);
export type ClearEnv = Shaped<typeof clearEnv>;

export const stream = oneOf('stdout', 'stderr', 'pty');
export type Stream = Shaped<typeof stream>;

/** Bytes that a stream had when it ended; a stream that is not named has none. */
export const sizes = struct({
  stdout: integer(0),
  stderr: integer(0),
  pty: integer(0),
});
export type Sizes = Shaped<typeof sizes>;
export const NO_OUTPUT: Sizes = { stdout: 0, stderr: 0, pty: 0 };

export const commandLine = tagged('kind', {
  shell: struct({ line: withoutNul(131_072, 1) }),
  argv: struct({ argv: list(withoutNul(131_072), 4096) }),
});
export type CommandLine = Shaped<typeof commandLine>;

export const execPurpose = oneOf('user', 'setup', 'shell', 'service', 'replay');

export const execSpec = struct({
  command: commandLine,
  env: nullable(sealedEnv),
  cwd: nullable(path),
  user: nullable(matching(/^[a-z0-9_][a-z0-9_.-]{0,63}$/i, 'a user name')),
  pty: nullable(struct({ cols: integer(1, 65_535), rows: integer(1, 65_535) })),
  stdin: flag,
  timeoutMs: nullable(milliseconds),
  /** While it runs the session is not idle. */
  keepsAwake: flag,
  purpose: execPurpose,
  /** A declared service is started again, as a new exec, in the epoch that follows a loss or a move. */
  service: nullable(struct({ name: text(64, 1), restart: flag })),
});
export type ExecSpec = Shaped<typeof execSpec>;

export const signalName = matching(/^SIG[A-Z0-9+]{2,12}$/, 'a signal such as SIGTERM');

/** How an exec ended, as its sandbox reported it; `not_started` means that it never ran and never will. */
export const outcome = tagged('kind', {
  exited: struct({ code: integer(0, 255) }),
  signalled: struct({ signal: signalName }),
  not_started: struct({
    reason: oneOf(
      'cancelled',
      'spawn_failed',
      'session_stopped',
      'session_failed',
      'sandbox_failed',
      'setup_failed',
    ),
    message: nullable(text(1000)),
  }),
});
export type Outcome = Shaped<typeof outcome>;

/** An exec of the past that is to be run again, and how it ended then. */
export const replayItem = struct({ execId, spec: execSpec, outcome });
export type ReplayItem = Shaped<typeof replayItem>;
/** Of one replay; more is refused, never left out. */
export const MAX_REPLAY = 1000;

export const unknownReason = oneOf(
  'sandbox_lost',
  'sandbox_failed',
  'moved',
  'rolled_back',
  'released',
  'stopped',
  'superseded',
);
export type UnknownReason = Shaped<typeof unknownReason>;

export const usage = struct({
  cpuMs: integer(0),
  peakMemoryBytes: integer(0),
  readBytes: integer(0),
  writtenBytes: integer(0),
});
export type Usage = Shaped<typeof usage>;

export const provider = matching(/^[a-z][a-z0-9-]{0,31}$/, 'a provider such as ns or docker');
export const capability = oneOf(
  'gpu',
  'suspend',
  'checkpoint',
  'memorySnapshot',
  'fork',
  'pty',
  'previews',
  /** Makes images out of build steps. */
  'build',
);
export type Capability = Shaped<typeof capability>;

export const poolName = text(200, 1);

/** Where a sandbox goes and what it can do there; chosen before deciding, recorded in the history. */
export const placement = withOptional(
  struct({ runnerId, provider, capabilities: list(capability, 16) }),
  /** Runners of the provider that say the same have its sandboxes in their reach. */
  { pool: poolName },
);
export type Placement = Shaped<typeof placement>;

export const base = struct({
  image: nullable(text(512)),
  digest: nullable(text(128)),
  distribution: nullable(text(64)),
  architecture: text(32, 1),
});
export type Base = Shaped<typeof base>;

export const resources = withOptional(
  struct({
    cpus: decimal(0.01, 1024),
    memoryMiB: integer(16, 16 * 1024 * 1024),
    diskMiB: integer(16, 1024 * 1024 * 1024),
    pids: integer(16, 4_194_304),
    gpu: nullable(text(64, 1)),
  }),
  /** Somebody asked for that disk, or for those: a provider that cannot hold a sandbox to it refuses. */
  { needsDiskLimit: flag, needsLimits: list(oneOf('memoryLimit', 'cpuLimit', 'pidsLimit'), 3) },
);
export type Resources = Shaped<typeof resources>;

export const policy = struct({
  idleTimeoutMs: nullable(integer(1000, MAX_KEEP_MS)),
  keepMs: nullable(integer(0, MAX_KEEP_MS)),
  maxRuntimeMs: nullable(integer(1000, 10 * 365 * 24 * 3600 * 1000)),
  rehydrate: oneOf('on_demand', 'immediately', 'never'),
  /** How long a runner may be unreachable before its sandboxes count as lost; null: never by itself. */
  lostAfterMs: nullable(integer(1000)),
  checkpointEveryMs: nullable(integer(10_000)),
  stopGraceMs: integer(0, 600_000),
});
export type Policy = Shaped<typeof policy>;

export const logPolicy = struct({
  budgetBytes: integer(1_048_576),
  whenFull: oneOf('truncate', 'block'),
});
export type LogPolicy = Shaped<typeof logPolicy>;

const label = dictionary(
  matching(/^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$/, 'a label name'),
  text(256),
  64,
);

/** A line for the shell of an image that is being built; what it leaves behind is in the image. */
export const BUILD_STEP = /^[^\0\r\n]{1,2000}$/;
export const MAX_BUILD_STEPS = 32;

export const sessionSpec = withOptional(
  struct({
    image: nullable(text(512, 1)),
    resources,
    env: nullable(sealedEnv),
    cwd: nullable(path),
    user: nullable(text(64, 1)),
    bundle: nullable(sha256Hex),
    setup: oneOf('auto', 'none'),
    ports: list(portNumber, 64),
    egress: flag,
    allowHosts: list(text(256, 1), 256),
    labels: label,
    policy,
    log: logPolicy,
  }),
  /** What is run on top of the image, once for all sessions that ask for the same. */
  { build: list(matching(BUILD_STEP, 'a build step of one line'), MAX_BUILD_STEPS) },
);
export type SessionSpec = Shaped<typeof sessionSpec>;

/** A stored state of a session's files: portable, and where it was taken also in a provider's fast form. */
export const checkpoint = struct({
  checkpointId,
  name: nullable(text(128, 1)),
  epoch: epochNumber,
  /** The content-addressed archive. */
  artifact: nullable(sha256Hex),
  /** Of the tree: what a restored sandbox reports back. */
  manifestDigest: sha256Hex,
  bytes: integer(0),
  newBytes: integer(0),
  native: nullable(
    withOptional(
      struct({ provider, runnerId, ref: text(1024, 1) }),
      /** Not with that runner alone: every one of the pool has it in its reach. */
      { pool: poolName },
    ),
  ),
  base,
});
export type Checkpoint = Shaped<typeof checkpoint>;

export const lineage = struct({ parent: sessionId, checkpoint, forkId: text(64, 1) });
export type Lineage = Shaped<typeof lineage>;

export const shareRight = oneOf('logs', 'watch', 'type', 'ports');
export type ShareRight = Shaped<typeof shareRight>;

export const stage = oneOf(
  'built',
  'queued',
  'provisioned',
  'extracted',
  'installed',
  'started',
  'first_output',
  'port_ready',
  'restored',
);
export type Stage = Shaped<typeof stage>;

export const limit = oneOf('memory', 'cpu', 'pids', 'disk', 'runtime', 'log');
export const limitLevel = oneOf('warning', 'exceeded', 'killed');
export const activityKind = oneOf('exec', 'attach', 'stdin', 'preview', 'files', 'cpu');
export type ActivityKind = Shaped<typeof activityKind>;

export const lossEvidence = tagged('kind', {
  probe: struct({ message: text(1000) }),
  different_instance: struct({ seen: instanceId }),
  unreachable: struct({ since: time }),
  decision: struct({ by: text(200, 1) }),
  log_closed: struct({}),
});
export type LossEvidence = Shaped<typeof lossEvidence>;

export const manifest = struct({
  kind: text(64, 1),
  path: text(4096, 1),
  digest: nullable(sha256Hex),
});

/** What a new sandbox's files ask for, and the command that installs it unless it is there already. */
export const setupFound = struct({
  manifests: list(manifest, 64),
  missingTools: list(text(64, 1), 64),
  command: nullable(commandLine),
});
export type SetupFound = Shaped<typeof setupFound>;
