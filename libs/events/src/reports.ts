import { checkpointId, execId, instanceId, sessionId, sha256Hex, signalId } from './ids';
import {
  flag,
  integer,
  list,
  nullable,
  oneOf,
  type Shape,
  type Shaped,
  struct,
  text,
  withOptional,
} from './shape';
import {
  base,
  checkpoint,
  epochNumber,
  limit,
  limitLevel,
  lossEvidence,
  manifest,
  outcome,
  portNumber,
  setupFound,
  sha256HexOrNull,
  sizes,
  stage,
  time,
  usage,
} from './values';

/** What runners say about their sandboxes. Output goes its own way: output.ts. */
const reportData = {
  /** From a pending sandbox, or from the runner that a sandbox was reassigned to. */
  SandboxReady: withOptional(struct({ base: nullable(base), restoredDigest: sha256HexOrNull }), {
    setup: nullable(setupFound),
  }),
  SandboxFailed: struct({ message: text(1000), retryable: flag }),
  SandboxLost: struct({ evidence: lossEvidence }),
  /** Destroyed, with everything it wrote acknowledged. */
  SandboxReleased: struct({}),
  /** `request` is the order's: a late answer to an earlier request is recognised. */
  SandboxSuspended: struct({ request: integer(0) }),
  SuspendFailed: struct({ request: integer(0), message: text(1000) }),
  SandboxResumed: struct({ request: integer(0) }),
  ResumeFailed: struct({ request: integer(0), message: text(1000) }),
  ExecStarted: struct({ execId, pid: nullable(integer(1)) }),
  ExecExited: struct({ execId, outcome, sizes, usage: nullable(usage) }),
  ExecSignalled: struct({ execId, signalId, delivered: flag }),
  /** `at` grows with every change of the same port. */
  PortOpened: struct({ port: portNumber, address: text(64, 1), execId: nullable(execId) }),
  PortClosed: struct({ port: portNumber }),
  CheckpointTaken: struct({ checkpoint }),
  CheckpointFailed: struct({ checkpointId, message: text(1000) }),
  /** About a checkpoint whose own form this runner has, also of a sandbox that is gone. */
  CheckpointArchived: struct({
    checkpointId,
    artifact: sha256Hex,
    manifestDigest: sha256Hex,
    bytes: integer(0),
    newBytes: integer(0),
  }),
  ArchiveFailed: struct({ checkpointId, message: text(1000) }),
  /** The runner keeps something for this session; refused as `session_deleted` when it need not. */
  CheckpointsHeld: struct({}),
  /** When the provider will end the sandbox. */
  LifetimeKnown: struct({ endsAt: time }),
  SetupDetected: struct({ manifests: list(manifest, 64), missingTools: list(text(64, 1), 64) }),
  StageReached: struct({ stage, execId: nullable(execId) }),
  LimitExceeded: struct({
    limit,
    level: limitLevel,
    value: integer(0),
    max: integer(0),
    execId: nullable(execId),
  }),
  /** Processor use above the threshold. */
  ActivityObserved: struct({ activity: oneOf('cpu', 'preview', 'stdin', 'files') }),
};

export type ReportType = keyof typeof reportData;

interface ReportEnvelope {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
  /** When it happened, by the runner's clock but never later than it was received. */
  readonly at: number;
  /** From the subject that it came on, never from the message. */
  readonly runnerId: string;
}

type ReportOf<T extends ReportType> = ReportEnvelope & {
  readonly type: T;
  readonly data: Shaped<(typeof reportData)[T]>;
};
export type Report = { [T in ReportType]: ReportOf<T> }[ReportType];
export type ReportNamed<T extends ReportType> = ReportOf<T>;

/** A report as the runner sends it. */
export type ReportMessage = { [T in ReportType]: Omit<ReportOf<T>, 'runnerId'> }[ReportType];

const anything: Shape<unknown> = (value) => value;
const envelopeShape = struct({
  type: oneOf(...(Object.keys(reportData) as ReportType[])),
  sessionId,
  epoch: epochNumber,
  instance: instanceId,
  at: time,
  data: anything,
});

export const REPORT_TYPES = Object.keys(reportData) as readonly ReportType[];

/**
 * Takes a report off the wire and puts the sender's name on it; throws `Malformed`. A runner's clock that
 * is ahead must not push a session's deadlines into the future, so `at` is at most `receivedAt`.
 */
export function parseReport(value: unknown, runnerId: string, receivedAt: number): Report {
  const { data, at, ...rest } = envelopeShape(value, 'report');
  const shape: Shape<object> = reportData[rest.type];
  return {
    ...rest,
    at: Math.min(at, receivedAt),
    runnerId,
    data: shape(data, `${rest.type} data`),
  } as Report;
}
