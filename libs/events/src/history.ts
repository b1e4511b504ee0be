import type { EventMetadata, Recorded, SessionEvent, SessionEventType } from './events';
import { correlationId, principalId, scopedKeyText, sha256Hex, traceparentText } from './ids';
import { integer, Malformed, nullable, struct } from './shape';

/** Plain data as the event store keeps it. */
export interface StoredEvent {
  readonly type: string;
  readonly revision: number;
  readonly data: unknown;
  readonly metadata: unknown;
}

/** The version that is written today, by type; a type that is not here is not known. */
export const CURRENT_VERSIONS: Readonly<Record<SessionEventType, 1>> = {
  SessionCreated: 1,
  SessionStopped: 1,
  SessionFailed: 1,
  SessionDeleted: 1,
  StopRequested: 1,
  ActivityObserved: 1,
  SandboxRequested: 1,
  SandboxStarted: 1,
  SandboxFailed: 1,
  SandboxLost: 1,
  SandboxReleased: 1,
  LifetimeKnown: 1,
  RunnerReassigned: 1,
  SandboxAdopted: 1,
  SuspendRequested: 1,
  SandboxSuspended: 1,
  SuspendFailed: 1,
  ResumeRequested: 1,
  SandboxResumed: 1,
  ResumeFailed: 1,
  ReleaseRequested: 1,
  RehydrateRequested: 1,
  ReplayRequested: 1,
  ReplayFinished: 1,
  ReplayStopped: 1,
  RestoreFailed: 1,
  ExecIssued: 1,
  ExecDispatched: 1,
  ExecStarted: 1,
  ExecExited: 1,
  ExecOutcomeUnknown: 1,
  ExecCancelRequested: 1,
  ExecSignalRequested: 1,
  ExecSignalled: 1,
  PortOpened: 1,
  PortClosed: 1,
  PortAccessChanged: 1,
  SetupDetected: 1,
  StageReached: 1,
  LimitExceeded: 1,
  CheckpointRequested: 1,
  CheckpointTaken: 1,
  CheckpointFailed: 1,
  CheckpointArchived: 1,
  ArchiveFailed: 1,
  RollbackRequested: 1,
  RolledBack: 1,
  ForkRequested: 1,
  Forked: 1,
  MoveRequested: 1,
  Moved: 1,
  MoveFailed: 1,
  ShareGranted: 1,
  ShareRevoked: 1,
};

/** `<type>@<version>` → the data of the next version. Old shapes are described here and nowhere else. */
type Upcast = (data: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>;
const UPCASTS: Readonly<Record<string, Upcast>> = {};

export interface Knowledge {
  readonly versions: Readonly<Record<SessionEventType, number>>;
  readonly upcasts: Readonly<Record<string, Upcast>>;
}
const TODAY: Knowledge = { versions: CURRENT_VERSIONS, upcasts: UPCASTS };

/** Met by a deciding fold: this process is older than the history and must not decide on it. */
export class UnknownEvent extends Error {
  readonly code = 'unknown_event';
  constructor(
    readonly type: string,
    readonly version: number,
  ) {
    super(`this version does not know ${type} version ${version}: upgrade it before it decides`);
    this.name = 'UnknownEvent';
  }
}

const metadataShape = struct({
  key: nullable(scopedKeyText),
  digest: nullable(sha256Hex),
  principal: principalId,
  correlationId,
  traceparent: nullable(traceparentText),
  version: integer(1, 1000),
});

const isKnown = (type: string): type is SessionEventType => Object.hasOwn(CURRENT_VERSIONS, type);

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** From the store into today's shape; null for an event that this version does not know. */
export function decode(
  stored: StoredEvent,
  { versions, upcasts }: Knowledge = TODAY,
): Recorded | null {
  const metadata = decodeMetadata(stored.metadata);
  if (!isKnown(stored.type)) return null;
  if (!isRecord(stored.data)) throw new Malformed(`${stored.type} data`, 'an object');
  let { version } = metadata;
  let data: Readonly<Record<string, unknown>> = stored.data;
  for (; version < versions[stored.type]; version += 1) {
    const upcast = upcasts[`${stored.type}@${version}`];
    if (!upcast) return null;
    data = upcast(data);
  }
  if (version !== versions[stored.type]) return null;
  const event = { type: stored.type, version, data } as unknown as SessionEvent;
  return { event, revision: stored.revision, metadata: { ...metadata, version } };
}

/** For whoever decides: an event that is not known is a reason to stop, never to skip. */
export function decodeForDeciding(stored: StoredEvent): Recorded {
  const recorded = decode(stored);
  if (!recorded) throw new UnknownEvent(stored.type, decodeMetadata(stored.metadata).version);
  return recorded;
}

/** Into the store: plain data, with the version in the metadata. */
export const encode = (
  event: SessionEvent,
  metadata: Omit<EventMetadata, 'version'>,
): { type: SessionEventType; data: SessionEvent['data']; metadata: EventMetadata } => ({
  type: event.type,
  data: event.data,
  metadata: { ...metadata, version: event.version },
});

function decodeMetadata(value: unknown): EventMetadata {
  const { key, digest, traceparent, ...rest } = metadataShape(value, 'metadata');
  return {
    ...rest,
    ...(key === null ? {} : { key }),
    ...(digest === null ? {} : { digest }),
    ...(traceparent === null ? {} : { traceparent }),
  };
}
