import type { Outcome, Sizes } from '@vmux/events';
import { active, type Effects } from './effects';
import { afterSetup } from './setup';
import { ENDED_EXECS, type Existing, MAX_OPEN_EXECS, type OpenExec, type Replay } from './state';

export const execEffects: Effects<
  | 'ExecIssued'
  | 'ExecDispatched'
  | 'ExecStarted'
  | 'ExecExited'
  | 'ExecOutcomeUnknown'
  | 'ExecCancelRequested'
  | 'ExecSignalRequested'
  | 'ExecSignalled'
> = {
  ExecIssued: (session, { execId, epoch, spec, follows, at }, issued) => ({
    ...active(session, at),
    replay: rerunning(session.replay, execId, follows),
    wakeFailed: false,
    fallenServices: session.fallenServices.filter((service) => service.execId !== follows),
    execs: {
      ...session.execs,
      [execId]: {
        execId,
        issued,
        spec,
        epoch,
        startedAt: null,
        cancel: null,
        signals: [],
        noted: {},
      },
    },
  }),
  ExecDispatched: (session, { execId, epoch }) => withExec(session, execId, () => ({ epoch })),
  ExecStarted: (session, { execId, at }) => withExec(session, execId, () => ({ startedAt: at })),
  ExecExited: (session, { execId, sizes, outcome, at }) => {
    const next = {
      ...rerun(ended(session, execId, sizes), execId, outcome),
      setupFailed: afterSetup(session, execId, outcome),
    };
    return active(isGivenBack(session) ? fallen(next, session.execs[execId]) : next, at);
  },
  ExecOutcomeUnknown: (session, { execId, sizes }) =>
    fallen(rerun(ended(session, execId, sizes), execId, null), session.execs[execId]),
  ExecCancelRequested: (session, { execId, graceMs }) =>
    withExec(session, execId, () => ({ cancel: { graceMs } })),
  ExecSignalRequested: (session, { execId, signalId, signal }) =>
    withExec(session, execId, ({ signals }) => ({ signals: [...signals, { signalId, signal }] })),
  ExecSignalled: (session, { execId, signalId }) =>
    withExec(session, execId, ({ signals }) => ({
      signals: signals.filter((each) => each.signalId !== signalId),
    })),
};

function rerunning(replay: Replay | null, execId: string, follows: string | null): Replay | null {
  const [item, ...left] = replay?.left ?? [];
  if (!replay || !item || item.execId !== follows) return replay;
  return { ...replay, left, last: { execId, item, ended: false, outcome: null } };
}

function rerun(session: Existing, execId: string, outcome: Outcome | null): Existing {
  const { replay } = session;
  if (replay?.last?.execId !== execId) return session;
  const last = { ...replay.last, ended: true, outcome };
  return { ...session, replay: { ...replay, done: replay.done + 1, last } };
}

function withExec(
  session: Existing,
  execId: string,
  change: (exec: OpenExec) => Partial<OpenExec>,
): Existing {
  const exec = session.execs[execId];
  if (!exec) return session;
  return { ...session, execs: { ...session.execs, [execId]: { ...exec, ...change(exec) } } };
}

/** What ends from then on ends because its sandbox does. */
const isGivenBack = ({ operation }: Existing): boolean =>
  operation?.kind === 'release' && operation.taken;

/** A service that somebody declared, and nobody cancelled, is started again in the next sandbox. */
function fallen(session: Existing, exec: OpenExec | undefined): Existing {
  if (!exec?.spec.service?.restart || exec.cancel) return session;
  const { execId, spec } = exec;
  const fallenServices = [...session.fallenServices, { execId, spec }];
  return { ...session, fallenServices: fallenServices.slice(-MAX_OPEN_EXECS) };
}

function ended(session: Existing, execId: string, sizes: Sizes): Existing {
  const { [execId]: exec, ...execs } = session.execs;
  if (!exec) return session;
  const { older, newer } = session.ended;
  const full = newer.length >= ENDED_EXECS;
  const last = { execId, sizes };
  const ended = full ? { older: newer, newer: [last] } : { older, newer: [...newer, last] };
  return { ...session, execs, ended };
}
