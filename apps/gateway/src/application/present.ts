import type { ExecSpec, Making, SessionSpec } from '@vmux/events';
import type { Answer } from './commander';
import { type ExecView } from './exec-view';
import type { RunnerStanding } from './runner-board';
import type { SessionSummary } from './session-index';
import { apply, type SessionView, type ShareView, unborn } from './session-view';

/** How things look in answers. Values of variables are never shown, only their names. */

const iso = (at: number): string => new Date(at).toISOString();
const isoOrNull = (at: number | null): string | null => (at === null ? null : iso(at));

const namesOf = (env: { readonly names: readonly string[] } | null): readonly string[] =>
  env?.names ?? [];

const specJson = ({ env, ...spec }: SessionSpec) => ({ ...spec, env: namesOf(env) });

export const sessionJson = (view: SessionView) => ({
  id: view.id,
  name: view.name,
  owner: view.owner,
  status: view.status,
  operation: view.operation,
  message: view.message,
  provider: view.provider,
  sandbox: view.sandbox && { ...view.sandbox, startedAt: iso(view.sandbox.startedAt) },
  spec: view.spec && specJson(view.spec),
  lineage: view.lineage && {
    parent: view.lineage.parent,
    forkId: view.lineage.forkId,
    checkpointId: view.lineage.checkpoint.checkpointId,
  },
  ports: [...view.ports.values()].map((port) => ({ ...port, openedAt: iso(port.openedAt) })),
  checkpoints: [...view.checkpoints.values()].map(
    ({ id, status, name, at, checkpoint, message }) => ({
      ...{ id, status, name, at: iso(at), message },
      ...{ bytes: checkpoint?.bytes ?? null, newBytes: checkpoint?.newBytes ?? null },
      portable: (checkpoint?.artifact ?? null) !== null,
      native: checkpoint?.native?.provider ?? null,
    }),
  ),
  shares: [...view.shares.values()].map(shareJson),
  forks: view.forks,
  stages: view.stages.map((stage) => ({ ...stage, at: iso(stage.at) })),
  setup: view.setup,
  execs: countsOf(view),
  createdAt: iso(view.createdAt),
  lastActivityAt: iso(view.lastActivityAt),
  endedAt: isoOrNull(view.endedAt),
  revision: view.revision,
  position: String(view.position),
});

/** How far the sandbox has come that a session waits for; null when it waits for none. */
export const makingJson = (making: Making | null) =>
  making && { stage: making.stage, since: iso(making.since), detail: making.detail };

/** Never with its token, nor with the hash of it. */
export const shareJson = ({ id, rights, ports, expiresAt, revokedAt }: ShareView) => ({
  ...{ id, rights, ports },
  expiresAt: iso(expiresAt),
  revokedAt: isoOrNull(revokedAt),
});

function countsOf({ execs }: SessionView) {
  const counts = { total: execs.size, open: 0 };
  for (const { endedAt } of execs.values()) if (endedAt === null) counts.open += 1;
  return counts;
}

export const summaryJson = (summary: SessionSummary) => ({
  ...summary,
  createdAt: iso(summary.createdAt),
  updatedAt: iso(summary.updatedAt),
  lastActivityAt: iso(summary.lastActivityAt),
  endedAt: isoOrNull(summary.endedAt),
  timings: timingsJson(summary.timings),
});

const timingsJson = ({ requestedAt, startedAt, stages }: SessionSummary['timings']) => ({
  requestedAt: isoOrNull(requestedAt),
  startedAt: isoOrNull(startedAt),
  stages: Object.fromEntries(Object.entries(stages).map(([stage, at]) => [stage, iso(at)])),
});

/** The exit as it was reported, or as unknown with the reason; null while it runs. */
export function exitJson({ outcome, unknownReason }: ExecView) {
  if (outcome) return outcome;
  return unknownReason ? { kind: 'unknown' as const, reason: unknownReason } : null;
}

export const execJson = (sessionId: string, exec: ExecView) => ({
  id: exec.id,
  sessionId,
  status: exec.status,
  summary: exec.commandSummary,
  purpose: exec.purpose,
  pty: exec.pty,
  follows: exec.follows,
  epoch: exec.epoch,
  pid: exec.pid,
  cancelRequested: exec.cancelRequested,
  cancelCause: exec.cancelCause,
  exit: exitJson(exec),
  sizes: exec.sizes,
  usage: exec.usage,
  issuedAt: iso(exec.issuedAt),
  startedAt: isoOrNull(exec.startedAt),
  endedAt: isoOrNull(exec.endedAt),
});

export const execSpecJson = ({ env, command, ...spec }: ExecSpec) => ({
  ...spec,
  ...(command.kind === 'shell' ? { command: command.line } : { argv: command.argv }),
  env: namesOf(env),
});

/** What a command led to at once: a repeat is answered from the same events, with the same words. */
export function viewOf({ accepted, events }: Answer): SessionView {
  const view = unborn(accepted.sessionId);
  for (const { recorded, position } of events) {
    view.revision = recorded.revision;
    view.position = position;
    apply(view, recorded, position);
  }
  return view;
}

export const runnerJson = ({ heartbeat, heardAt, alive }: RunnerStanding) => {
  const { tunnel: _, making: __, at, ...rest } = heartbeat;
  return { ...rest, alive, at: iso(at), heardAt: iso(heardAt) };
};
