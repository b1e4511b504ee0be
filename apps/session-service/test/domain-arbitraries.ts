import type {
  ClientCommand,
  ClientCommandType,
  CommandNamed,
  Policy,
  Report,
  ReportNamed,
  ReportType,
} from '@vmux/events';
import fc from 'fast-check';
import {
  checkpoint,
  checkpointNo,
  command,
  EXEC,
  exec,
  hex,
  key,
  nativeCheckpoint,
  placementOn,
  report,
  SPEC,
} from './domain-makers';

const few = fc.nat({ max: 4 });
const execId = few.map(exec);
const checkpointId = few.map(checkpointNo);
const provider = fc.constantFrom('ns', 'docker');
const request = fc.nat({ max: 60 });
const message = fc.constant('it went wrong');
const either = fc.boolean();

const policy: fc.Arbitrary<Policy> = fc.record({
  idleTimeoutMs: fc.constantFrom(null, 4_000),
  keepMs: fc.constantFrom(null, 8_000),
  maxRuntimeMs: fc.constantFrom(null, null, 60_000),
  rehydrate: fc.constantFrom('on_demand', 'immediately', 'never'),
  lostAfterMs: fc.constantFrom(null, 1_000),
  checkpointEveryMs: fc.constantFrom(null, 10_000),
  stopGraceMs: fc.constant(100),
});

export const creation: fc.Arbitrary<ClientCommand> = fc
  .tuple(policy, fc.subarray(['suspend', 'checkpoint', 'pty'] as const))
  .map(([chosen, capabilities]) =>
    command(
      'CreateSession',
      {
        name: 'web',
        attempt: 0,
        provider: 'ns',
        spec: { ...SPEC, policy: chosen },
        lineage: null,
      },
      { placement: placementOn('ns', capabilities) },
    ),
  );

const spec = fc.record({ service: either, keepsAwake: either, timeout: either }).map((chosen) => ({
  ...EXEC,
  keepsAwake: chosen.keepsAwake,
  timeoutMs: chosen.timeout ? 3_000 : null,
  service: chosen.service ? { name: 'svc', restart: true } : null,
}));

type CommandData = {
  [T in ClientCommandType]: fc.Arbitrary<CommandNamed<T>['data']>;
};
const commandData: CommandData = {
  CreateSession: fc.constant({
    name: 'web',
    attempt: 0,
    provider: 'ns',
    spec: SPEC,
    lineage: null,
  }),
  IssueExec: fc.record({ execId: fc.nat({ max: 12 }).map(exec), spec }),
  CancelExec: fc.record({ execId, graceMs: fc.constantFrom(0, 100) }),
  SignalExec: fc.record({
    execId,
    signalId: few.map((number) => `g${String(number).padStart(12, '0')}`),
    signal: fc.constant('SIGINT'),
  }),
  StopSession: fc.record({ graceMs: fc.constant(null), force: either }),
  DeleteSession: fc.record({ force: either }),
  SuspendSession: fc.constant({}),
  ResumeSession: fc.constant({}),
  TakeCheckpoint: fc.record({ checkpointId, name: fc.constant(null) }),
  RollbackSession: fc.record({ checkpointId, allowBaseChange: either }),
  ForkSession: fc.record({
    forkId: few.map((number) => `f${String(number).padStart(12, '0')}`),
    checkpointId: fc.option(checkpointId),
    newCheckpointId: checkpointId,
    name: fc.constant('web'),
    count: fc.integer({ min: 1, max: 3 }),
    provider: fc.option(provider),
  }),
  MoveSession: fc.record({ provider, checkpointId, allowBaseChange: either }),
  RehydrateSession: fc.record({
    checkpointId: fc.option(checkpointId),
    provider: fc.option(provider),
    allowBaseChange: either,
    force: either,
    replay: fc.array(
      few.map((number) => ({
        execId: exec(number + 100),
        spec: EXEC,
        outcome: { kind: 'exited' as const, code: number % 2 },
      })),
      { maxLength: 3 },
    ),
  }),
  GrantShare: fc.record({
    shareId: few.map((number) => `s${String(number).padStart(12, '0')}`),
    tokenHash: fc.constant(hex('a')),
    rights: fc.constant(['logs' as const]),
    ports: fc.constant([]),
    expiresAt: fc.nat({ max: 100_000 }),
  }),
  RevokeShare: fc.record({
    shareId: few.map((number) => `s${String(number).padStart(12, '0')}`),
  }),
  SetPortAccess: fc.record({
    port: fc.integer({ min: 1, max: 3 }),
    public: fc.option(either),
    wake: fc.option(either),
    revokeTokens: either,
  }),
  WakeSession: fc.record({ cause: fc.constantFrom('attach', 'preview') }),
  NoteActivity: fc.record({ activity: fc.constantFrom('stdin', 'files') }),
};

const commandOf = <T extends ClientCommandType>(type: T): fc.Arbitrary<ClientCommand> =>
  fc
    .tuple(
      commandData[type] as fc.Arbitrary<CommandNamed<T>['data']>,
      fc.nat({ max: 1_000_000 }),
      fc.option(provider.map((name) => placementOn(name))),
    )
    .map(([data, number, placement]) =>
      command(type, data, { key: key(`${type.slice(0, 12)}-${number}`), placement }),
    );

/** Most of them ask for work; the rest is rarer, endings rarest. */
export const anyCommand: fc.Arbitrary<ClientCommand> = fc.oneof(
  { weight: 8, arbitrary: commandOf('IssueExec') },
  ...(Object.keys(commandData) as ClientCommandType[]).map((type) => ({
    weight: type === 'StopSession' || type === 'DeleteSession' ? 1 : 3,
    arbitrary: commandOf(type),
  })),
);

const takenOf = (number: number, epoch: number) =>
  number % 2 === 0 ? checkpoint(number, epoch) : nativeCheckpoint(number, epoch);

type ReportData = { [T in ReportType]: fc.Arbitrary<ReportNamed<T>['data']> };
const reportData: ReportData = {
  SandboxReady: fc.record({
    base: fc.constant(null),
    restoredDigest: fc.constantFrom(null, hex('1'), hex('7')),
  }),
  SandboxFailed: fc.record({ message, retryable: either }),
  SandboxLost: fc.record({
    evidence: fc.constantFrom(
      { kind: 'probe' as const, message: 'gone' },
      { kind: 'different_instance' as const, seen: 'i-x' },
      { kind: 'unreachable' as const, since: 0 },
      { kind: 'log_closed' as const },
    ),
  }),
  SandboxReleased: fc.constant({}),
  SandboxSuspended: fc.record({ request }),
  SuspendFailed: fc.record({ request, message }),
  SandboxResumed: fc.record({ request }),
  ResumeFailed: fc.record({ request, message }),
  ExecStarted: fc.record({ execId, pid: fc.constant(1) }),
  ExecExited: fc.record({
    execId,
    outcome: fc.constantFrom(
      { kind: 'exited' as const, code: 3 },
      { kind: 'signalled' as const, signal: 'SIGKILL' },
      { kind: 'not_started' as const, reason: 'spawn_failed' as const, message: null },
    ),
    sizes: fc.record({ stdout: few, stderr: few, pty: few }),
    usage: fc.constant(null),
  }),
  ExecSignalled: fc.record({
    execId,
    signalId: few.map((number) => `g${String(number).padStart(12, '0')}`),
    delivered: either,
  }),
  PortOpened: fc.record({
    port: fc.integer({ min: 1, max: 3 }),
    address: fc.constant('::'),
    execId: fc.constant(null),
  }),
  PortClosed: fc.record({ port: fc.integer({ min: 1, max: 3 }) }),
  CheckpointTaken: fc
    .tuple(few, fc.integer({ min: 1, max: 4 }))
    .map(([number, epoch]) => ({ checkpoint: takenOf(number, epoch) })),
  CheckpointFailed: fc.record({ checkpointId, message }),
  CheckpointArchived: fc.record({
    checkpointId,
    artifact: fc.constant(hex('b')),
    manifestDigest: fc.constantFrom(hex('1'), hex('7')),
    bytes: few,
    newBytes: few,
  }),
  CheckpointsHeld: fc.constant({}),
  ArchiveFailed: fc.record({ checkpointId, message }),
  LifetimeKnown: fc.record({ endsAt: fc.nat({ max: 60_000 }) }),
  SetupDetected: fc.constant({ manifests: [], missingTools: [] }),
  StageReached: fc.record({
    stage: fc.constantFrom('provisioned', 'started'),
    execId: fc.option(execId),
  }),
  LimitExceeded: fc.record({
    limit: fc.constantFrom('memory', 'cpu'),
    level: fc.constantFrom('warning', 'killed'),
    value: fc.constant(2),
    max: fc.constant(1),
    execId: fc.option(execId),
  }),
  ActivityObserved: fc.record({ activity: fc.constantFrom('cpu', 'preview') }),
};

const reportOf = <T extends ReportType>(type: T): fc.Arbitrary<Report> =>
  fc
    .record({
      data: reportData[type] as fc.Arbitrary<ReportNamed<T>['data']>,
      epoch: fc.integer({ min: 1, max: 4 }),
      foreign: fc.nat({ max: 9 }),
      runnerId: fc.constantFrom('ns-1', 'ns-1', 'docker-1'),
      at: fc.nat({ max: 30_000 }),
    })
    .map(({ data, epoch, foreign, ...rest }) =>
      report(type, data, { ...rest, epoch, instance: foreign === 0 ? 'i-x' : `i-${epoch}` }),
    );

/** Anything that a runner could say and that would be taken off the wire. */
export const anyReport: fc.Arbitrary<Report> = fc.oneof(
  ...(Object.keys(reportData) as ReportType[]).map(reportOf),
);

export type Step =
  | { readonly kind: 'command'; readonly command: ClientCommand }
  /** Said of the current or the pending sandbox, or of whatever it was made up for. */
  | {
      readonly kind: 'report';
      readonly report: Report;
      readonly about: 'current' | 'pending' | 'any';
    }
  | { readonly kind: 'repeat' | 'serve' | 'finish'; readonly pick: number }
  | { readonly kind: 'attend' }
  | { readonly kind: 'wait'; readonly ms: number };

const pick = fc.nat({ max: 1_000 });
const sound: fc.WeightedArbitrary<Step>[] = [
  {
    weight: 6,
    arbitrary: anyCommand.map((chosen): Step => ({ kind: 'command', command: chosen })),
  },
  {
    weight: 8,
    arbitrary: pick.map((chosen): Step => ({ kind: 'serve', pick: chosen })),
  },
  {
    weight: 3,
    arbitrary: pick.map((chosen): Step => ({ kind: 'finish', pick: chosen })),
  },
  { weight: 3, arbitrary: fc.constant<Step>({ kind: 'attend' }) },
  {
    weight: 2,
    arbitrary: fc.nat({ max: 6_000 }).map((ms): Step => ({ kind: 'wait', ms })),
  },
];
const wild: fc.WeightedArbitrary<Step> = {
  weight: 6,
  arbitrary: fc
    .tuple(anyReport, fc.constantFrom('current', 'current', 'pending', 'any'))
    .map(([chosen, about]): Step => ({ kind: 'report', report: chosen, about })),
};
const repeats: fc.WeightedArbitrary<Step> = {
  weight: 4,
  arbitrary: pick.map((chosen): Step => ({ kind: 'repeat', pick: chosen })),
};

const LONG = { minLength: 10, maxLength: 120, size: 'max' as const };

/** Clients ask, runners do as they are told or say anything, and everything may be delivered again. */
export const wildSteps = fc.array(fc.oneof(...sound, wild, repeats), LONG);
