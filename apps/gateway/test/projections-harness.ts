import type { EventStore } from '@vmux/event-store';
import {
  encode,
  eventIdOf,
  fact,
  NO_OUTPUT,
  type SessionEvent,
  type SessionSpec,
  sessionStream,
} from '@vmux/events';
import { type SeededRandom, seededRandom } from '@vmux/testing';
import { type Placed, project } from '../src/projections/project';
import type { SessionRow } from '../src/projections/session-row';

export const silent = { info: () => undefined, warn: () => undefined };
export const owners = ['ann', 'bob'];

export const spec = (labels: Record<string, string> = {}): SessionSpec => ({
  image: null,
  resources: { cpus: 1, memoryMiB: 512, diskMiB: 1024, pids: 256, gpu: null },
  env: null,
  cwd: null,
  user: null,
  bundle: null,
  setup: 'none',
  ports: [],
  egress: true,
  allowHosts: [],
  labels,
  policy: {
    idleTimeoutMs: null,
    keepMs: null,
    maxRuntimeMs: null,
    rehydrate: 'on_demand',
    lostAfterMs: null,
    checkpointEveryMs: null,
    stopGraceMs: 0,
  },
  log: { budgetBytes: 1_048_576, whenFull: 'truncate' },
});

export const created = (sessionId: string, owner: string, at: number, labels = {}): SessionEvent =>
  fact('SessionCreated', {
    at,
    sessionId,
    owner,
    name: sessionId.slice(0, -5),
    attempt: 0,
    provider: 'ns',
    spec: spec(labels),
    lineage: null,
  });

export const requested = (epoch: number, at: number, provider = 'ns'): SessionEvent =>
  fact('SandboxRequested', {
    at,
    epoch,
    runnerId: 'local-1',
    provider,
    capabilities: [],
    purpose: 'create',
    restore: null,
    allowBaseChange: false,
  });

export const started = (epoch: number, at: number): SessionEvent =>
  fact('SandboxStarted', {
    at,
    epoch,
    instance: `i-${epoch}`,
    runnerId: 'local-1',
    base: null,
    restored: null,
  });

export const issued = (execId: string, at: number): SessionEvent =>
  fact('ExecIssued', {
    at,
    execId,
    epoch: null,
    follows: null,
    spec: {
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
    },
  });

export const exited = (execId: string, code: number, at: number): SessionEvent =>
  fact('ExecExited', {
    at,
    execId,
    epoch: 1,
    outcome: { kind: 'exited', code },
    sizes: { ...NO_OUTPUT, stdout: 10 },
    usage: { cpuMs: 5, peakMemoryBytes: 7, readBytes: 1, writtenBytes: 2 },
  });

/** Anything that may happen next to a session, likely or not: a projection takes it as it comes. */
export function anything(random: SeededRandom, at: number): SessionEvent {
  const epoch = 1 + random.integer(3);
  const execId = `e00000000000${random.integer(6)}`;
  const port = 8000 + random.integer(3);
  return random.pick<() => SessionEvent>([
    () => requested(epoch, at, random.pick(['ns', 'docker'])),
    () => started(epoch, at),
    () => started(epoch, at),
    () => fact('SandboxFailed', { at, epoch, message: 'no', retryable: true, mayRemain: false }),
    () =>
      fact('SandboxLost', {
        at,
        epoch,
        instance: `i-${epoch}`,
        evidence: { kind: 'probe', message: 'gone' },
      }),
    () => fact('SandboxReleased', { at, epoch, instance: `i-${epoch}` }),
    () => fact('SandboxSuspended', { at, epoch }),
    () => fact('SandboxResumed', { at, epoch }),
    () =>
      fact('RehydrateRequested', {
        at,
        checkpointId: null,
        provider: 'ns',
        allowBaseChange: false,
        cause: 'exec',
      }),
    () => fact('RestoreFailed', { at, checkpointId: null, message: 'no' }),
    () => fact('StageReached', { at, epoch, stage: 'installed', execId: null }),
    () => fact('PortOpened', { at, epoch, port, address: '127.0.0.1', execId: null }),
    () => fact('PortClosed', { at, epoch, port }),
    () => fact('ActivityObserved', { at, activity: 'attach' }),
    () => issued(execId, at),
    () => fact('ExecStarted', { at, execId, epoch, pid: 2 }),
    () => exited(execId, random.integer(2), at),
    () =>
      fact('ExecOutcomeUnknown', { at, execId, epoch, reason: 'sandbox_lost', sizes: NO_OUTPUT }),
    () => fact('StopRequested', { at, cause: 'request', graceMs: 0, thenDelete: false }),
    () => fact('SessionStopped', { at, cause: 'request' }),
    () => fact('SessionFailed', { at, message: 'no' }),
  ])();
}

export interface Happening {
  readonly sessionId: string;
  readonly event: SessionEvent;
}

/** Histories of several sessions, interleaved; some are deleted, and some events come after that. */
export function happenings(seed: number, sessions: number, events: number): Happening[] {
  const random = seededRandom(seed);
  const named = Array.from(
    { length: sessions },
    (_, index) => `s${seed}-${index.toString(16).padStart(4, '0')}`,
  );
  const born = new Set<string>();
  return Array.from({ length: events }, (_, index): Happening => {
    const at = 1_000 + index;
    const sessionId = random.pick(named);
    if (!born.has(sessionId)) {
      born.add(sessionId);
      const labels = random.integer(2) === 0 ? { team: random.pick(['a', 'b']) } : {};
      return { sessionId, event: created(sessionId, random.pick(owners), at, labels) };
    }
    if (random.integer(40) === 0)
      return {
        sessionId,
        event: fact('SessionDeleted', { at, sessionId, owner: 'ann', createdBy: null }),
      };
    return { sessionId, event: anything(random, at) };
  });
}

export async function append(store: EventStore, all: readonly Happening[]): Promise<bigint> {
  let position = 0n;
  for (const [index, { sessionId, event }] of all.entries()) {
    const stream = sessionStream(sessionId);
    const { type, data, metadata } = encode(event, { principal: 'system', correlationId: 'r-1' });
    const id = eventIdOf(stream, index, 'k', Number(process.hrtime.bigint() % 1_000_000n));
    const plain = JSON.parse(JSON.stringify({ data, metadata }));
    ({ position } = await store.append(stream, 'any', [{ id, type, ...plain }]));
  }
  return position;
}

/** The rows as one replay from the beginning makes them. */
export function replayed(all: readonly (Placed & { readonly sessionId: string })[]) {
  const rows = new Map<string, SessionRow>();
  for (const placed of all) {
    const row = project(rows.get(placed.sessionId) ?? null, placed);
    if (row) rows.set(placed.sessionId, row);
    else rows.delete(placed.sessionId);
  }
  return rows;
}

/** The store's sessions, each event with its place. */
export async function placedIn(store: EventStore) {
  const all: (Placed & { readonly sessionId: string })[] = [];
  for await (const item of store.subscribe({ prefixes: [sessionStream('')] })) {
    if (item.kind === 'caughtUp') break;
    if (item.kind !== 'event') continue;
    const { stream, type, data, revision, position } = item.event;
    const event = { type, version: 1, data } as unknown as SessionEvent;
    all.push({ sessionId: stream.slice(sessionStream('').length), event, revision, position });
  }
  return all;
}

/** The same as `placedIn` without a store: positions with gaps, revisions without. */
export function placedHere(all: readonly Happening[]): (Placed & { readonly sessionId: string })[] {
  const revisions = new Map<string, number>();
  return all.map(({ sessionId, event }, index) => {
    const revision = (revisions.get(sessionId) ?? -1) + 1;
    revisions.set(sessionId, revision);
    return { sessionId, event, revision, position: BigInt(index * 7 + 3) };
  });
}
