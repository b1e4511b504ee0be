import { active, type Effects, retire } from './effects';
import { lacking } from './setup';
import { type Existing, MAX_PORTS, type Port } from './state';

export const sessionEffects: Effects<
  | 'SessionStopped'
  | 'SessionFailed'
  | 'StopRequested'
  | 'ActivityObserved'
  | 'PortOpened'
  | 'PortClosed'
  | 'PortAccessChanged'
  | 'SetupDetected'
  | 'StageReached'
  | 'LimitExceeded'
  | 'ShareGranted'
  | 'ShareRevoked'
> = {
  SessionStopped: (session) => over(session, 'stopped'),
  SessionFailed: (session) => over(session, 'failed'),

  StopRequested: (session, { cause, graceMs, thenDelete }) => ({
    ...(session.pending ? retire(session, { ...session.pending, instance: null }) : session),
    status: 'stopping',
    stop: { cause, graceMs, thenDelete },
    pending: null,
    operation: null,
  }),

  ActivityObserved: (session, { at }) => active(session, at),

  PortOpened: (session, { port, address, at }) =>
    withPort(session, { port, address, open: true, changedAt: at }),
  PortClosed: (session, { port, at }) =>
    withPort(session, {
      port,
      address: session.ports[port]?.address ?? '',
      open: false,
      changedAt: at,
    }),

  PortAccessChanged: (session, { port, public: isPublic, wake, generation }) => ({
    ...session,
    access: { ...session.access, [port]: { public: isPublic, wake, generation } },
  }),

  SetupDetected: (session, { missingTools, at }) => ({
    ...noting(session, null, 'setup', at),
    setupFailed: lacking(missingTools),
  }),
  StageReached: (session, { execId, stage, at }) => noting(session, execId, `stage:${stage}`, at),
  LimitExceeded: (session, { execId, limit, level, at }) => ({
    ...noting(session, execId, `limit:${limit}:${level}`, at),
    warnedOfRuntime: session.warnedOfRuntime || limit === 'runtime',
  }),

  ShareGranted: (session, { at, ...share }) => ({
    ...session,
    shares: [...session.shares.filter(({ expiresAt }) => expiresAt > at), share],
  }),
  ShareRevoked: (session, { shareId }) => ({
    ...session,
    shares: session.shares.filter((share) => share.shareId !== shareId),
  }),
};

const over = (session: Existing, status: 'stopped' | 'failed'): Existing => ({
  ...session,
  status,
  current: null,
  pending: null,
  operation: null,
  replay: null,
  execs: {},
  fallenServices: [],
  ports: {},
  noted: {},
});

/** A closed port is remembered, so that a late report of its opening is recognised. */
function withPort(session: Existing, port: Port): Existing {
  const ports: Readonly<Record<string, Port>> = { ...session.ports, [port.port]: port };
  const all = Object.values(ports);
  if (all.length <= MAX_PORTS) return { ...session, ports };
  const forgotten = all
    .filter(({ open }) => !open)
    .reduce<Port | null>((a, b) => (a && a.changedAt <= b.changedAt ? a : b), null);
  const kept = Object.entries(ports).filter(([, each]) => each !== forgotten);
  return { ...session, ports: Object.fromEntries(kept) };
}

function noting(session: Existing, execId: string | null, what: string, at: number): Existing {
  if (execId === null) return { ...session, noted: { ...session.noted, [what]: at } };
  const exec = session.execs[execId];
  if (!exec) return session;
  const noted = { ...exec.noted, [what]: at };
  return { ...session, execs: { ...session.execs, [execId]: { ...exec, noted } } };
}
