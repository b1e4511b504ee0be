import type {
  Capability,
  Checkpoint,
  ClientCommand,
  ClientCommandType,
  CommandNamed,
  ExecSpec,
  Placement,
  Report,
  ReportNamed,
  ReportType,
  SessionSpec,
  SystemCommand,
  SystemCommandType,
} from '@vmux/events';

export const SESSION_ID = 'web-0a1b';
export const OWNER = 'ann';

export const placementOn = (
  provider: string,
  capabilities: readonly Capability[] = ['suspend', 'checkpoint', 'pty'],
): Placement => ({ runnerId: `${provider}-1`, provider, capabilities });

export const ON_NS = placementOn('ns');

export const SPEC: SessionSpec = {
  image: null,
  resources: { cpus: 1, memoryMiB: 512, diskMiB: 1024, pids: 512, gpu: null },
  env: null,
  cwd: null,
  user: null,
  bundle: null,
  setup: 'none',
  ports: [],
  egress: true,
  allowHosts: [],
  labels: {},
  policy: {
    idleTimeoutMs: 600_000,
    keepMs: null,
    maxRuntimeMs: null,
    rehydrate: 'on_demand',
    lostAfterMs: null,
    checkpointEveryMs: null,
    stopGraceMs: 1_000,
  },
  log: { budgetBytes: 1_073_741_824, whenFull: 'truncate' },
};

export const EXEC: ExecSpec = {
  command: { kind: 'shell', line: 'true' },
  env: null,
  cwd: null,
  user: null,
  pty: null,
  stdin: false,
  timeoutMs: null,
  keepsAwake: true,
  purpose: 'user',
  service: null,
};

export const exec = (number: number): string => `e${String(number).padStart(12, '0')}`;
export const checkpointNo = (number: number): string => `c${String(number).padStart(12, '0')}`;
export const hex = (digit: string): string => digit.repeat(64);

export const checkpoint = (number: number, epoch: number, _runnerId?: string): Checkpoint => ({
  checkpointId: checkpointNo(number),
  name: null,
  epoch,
  artifact: hex('b'),
  manifestDigest: String(number % 10).repeat(64),
  bytes: 10,
  newBytes: 10,
  native: null,
  base: { image: null, digest: null, distribution: null, architecture: 'x64' },
});

/** Only in the form of its provider: the portable one is still to be made. */
export const nativeCheckpoint = (number: number, epoch: number, runnerId = 'ns-1'): Checkpoint => ({
  ...checkpoint(number, epoch),
  artifact: null,
  native: { provider: runnerId.replace(/-1$/, ''), runnerId, ref: `snapshot-${number}` },
});

export const key = (name: string): string => name.padEnd(22, '_').slice(0, 22);

/** A client's command; its key is its type and number, its digest the same for the same number. */
export const command = <T extends ClientCommandType>(
  type: T,
  data: CommandNamed<T>['data'],
  change: Partial<ClientCommand> = {},
): ClientCommand =>
  ({
    type,
    sessionId: SESSION_ID,
    key: key(type),
    digest: hex('a'),
    owner: OWNER,
    principal: 'key:1',
    correlationId: 'r-1',
    traceparent: null,
    at: 1_000,
    placement: null,
    data,
    ...change,
  }) as ClientCommand;

export const systemCommand = <T extends SystemCommandType>(
  type: T,
  data: CommandNamed<T>['data'],
  change: Partial<SystemCommand> = {},
): SystemCommand =>
  ({
    type,
    sessionId: SESSION_ID,
    principal: 'system',
    correlationId: 'r-1',
    traceparent: null,
    at: 1_000,
    placement: null,
    data,
    ...change,
  }) as SystemCommand;

/** A report of the first sandbox. */
export const report = <T extends ReportType>(
  type: T,
  data: ReportNamed<T>['data'],
  change: Partial<Report> = {},
): Report =>
  ({
    type,
    sessionId: SESSION_ID,
    epoch: 1,
    instance: 'i-1',
    at: 1_000,
    runnerId: 'ns-1',
    data,
    ...change,
  }) as Report;
