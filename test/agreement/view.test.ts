import { fact, type Recorded } from '@vmux/events';
import fc from 'fast-check';
import { execHasEnded } from '../../apps/gateway/src/application/exec-view';
import { apply, type SessionView, unborn } from '../../apps/gateway/src/application/session-view';
import { project } from '../../apps/gateway/src/projections/project';
import type { SessionRow } from '../../apps/gateway/src/projections/session-row';
import { evolve } from '../../apps/session-service/src/domain/evolve';
import {
  exists,
  lastCheckpoint,
  openExecs,
  type Session,
  UNBORN,
} from '../../apps/session-service/src/domain/state';
import { creation, wildSteps } from '../../apps/session-service/test/domain-arbitraries';
import { checkpointNo, SESSION_ID } from '../../apps/session-service/test/domain-makers';
import { played } from '../../apps/session-service/test/domain-play';

const RUNS = { numRuns: Number(process.env.PROPERTY_RUNS ?? 150) };

/** Requests that readers see under way; the domain knows of others too. */
const SHOWN = ['suspend', 'resume', 'release', 'rehydrate', 'rollback', 'move'];

const NOBODY = { sandbox: null, pending: null, operation: null, openExecs: [], ports: [] };

function factsOf(session: Session): object {
  if (!exists(session)) return { status: session.status, ...NOBODY };
  const { status, provider, current, pending, operation, ports, lastActivityAt } = session;
  return {
    status,
    provider,
    lastActivityAt,
    sandbox: current && {
      epoch: current.epoch,
      instance: current.instance,
      runnerId: current.runnerId,
      startedAt: current.startedAt,
    },
    pending: pending?.epoch ?? null,
    lastCheckpoint: lastCheckpoint(session)?.checkpointId ?? null,
    operation: operation && SHOWN.includes(operation.kind) ? operation.kind : null,
    openExecs: openExecs(session).map(({ execId, epoch, startedAt, cancel }) => ({
      ...{ id: execId, epoch, startedAt, cancelRequested: cancel !== null },
    })),
    ports: Object.values(ports)
      .filter(({ open }) => open)
      .map(({ port }) => port)
      .sort(),
  };
}

function shownBy(view: SessionView): object {
  if (view.status === 'deleted' || view.status === 'unborn')
    return { status: view.status, ...NOBODY };
  const { status, provider, lastActivityAt, sandbox, pending, operation, lastCheckpoint } = view;
  const open = [...view.execs.values()].filter((exec) => !execHasEnded(exec));
  return {
    ...{ status, provider, lastActivityAt, sandbox, pending: pending?.epoch ?? null, operation },
    lastCheckpoint,
    openExecs: open.map(({ id, epoch, startedAt, cancelRequested }) => ({
      ...{ id, epoch, startedAt, cancelRequested },
    })),
    ports: [...view.ports.keys()].sort(),
  };
}

function listedAs(row: SessionRow | null): object | null {
  if (!row) return null;
  const { status, provider, sandbox, ports } = row;
  const openExecs = Object.entries(row.openExecs).map(([id, started]) => ({ id, started }));
  return { status, provider, sandbox, ports, openExecs };
}

function toBeListed(session: Session): object | null {
  if (!exists(session)) return null;
  const { status, provider, current, ports } = session;
  return {
    ...{ status, provider },
    sandbox: current && {
      epoch: current.epoch,
      runnerId: current.runnerId,
      startedAt: current.startedAt,
    },
    ports: Object.values(ports).flatMap(({ port, open }) => (open ? [port] : [])),
    openExecs: openExecs(session).map(({ execId, startedAt }) => ({
      ...{ id: execId, started: startedAt !== null },
    })),
  };
}

/**
 * Folds a random history and compares wherever a decision ended: what is appended at once may be read in
 * two parts, and means something only as a whole.
 */
function compare(
  [create, steps]: Parameters<typeof played>,
  read: (recorded: Recorded) => void,
  same: (session: Session) => void,
): void {
  const ends = new Set<number>();
  const { past } = played(create, steps, ({ session }) => ends.add(session.revision));
  let session: Session = UNBORN;
  for (const recorded of past.history) {
    session = evolve(session, recorded);
    read(recorded);
    if (ends.has(recorded.revision)) same(session);
  }
}

describe('A session that runs in its second sandbox', () => {
  it('still runs when the first one is released or lost late', () => {
    const placement = { provider: 'ns', runnerId: 'ns-1', capabilities: [] };
    const asked = { purpose: 'create', restore: null, allowBaseChange: false } as const;
    const evidence = { kind: 'probe', message: 'gone' } as const;
    const instance = (epoch: number) => ({ at: epoch, epoch, instance: `i-${epoch}` });
    const starts = (epoch: number) => [
      fact('SandboxRequested', { at: epoch, epoch, ...placement, ...asked }),
      fact('SandboxStarted', { ...instance(epoch), runnerId: 'ns-1', base: null, restored: null }),
    ];
    const history = [
      ...starts(1),
      fact('SandboxLost', { ...instance(1), evidence }),
      ...starts(2),
      fact('SandboxReleased', instance(1)),
      fact('SandboxLost', { ...instance(1), evidence }),
      fact('SandboxStarted', { ...instance(1), runnerId: 'ns-1', base: null, restored: null }),
    ];
    const view = unborn(SESSION_ID);
    const metadata = { principal: 'runner:ns-1', correlationId: 'r-1', version: 1 };
    for (const [revision, event] of history.entries())
      apply(view, { event, revision, metadata }, BigInt(revision));
    expect(view).toMatchObject({ status: 'running', sandbox: { epoch: 2, instance: 'i-2' } });
  });
});

describe('A release whose checkpoint fails', () => {
  it('is no longer under way', () => {
    const checkpointId = checkpointNo(1);
    const view = unborn(SESSION_ID);
    const metadata = { principal: 'system', correlationId: 'r-1', version: 1 };
    const asked = fact('ReleaseRequested', { at: 1, epoch: 1, checkpointId, cause: 'idle' });
    apply(view, { event: asked, revision: 0, metadata }, 0n);
    expect(view.operation).toBe('release');
    const event = fact('CheckpointFailed', { at: 2, checkpointId, message: 'disk full' });
    apply(view, { event, revision: 1, metadata }, 1n);
    expect(view).toMatchObject({ operation: null, message: 'disk full', lastActivityAt: 2 });
  });
});

describe('Whatever happened to a session', () => {
  it('its readers see the status, sandbox, requests, execs, ports and last checkpoint that decisions are made on', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        const view = unborn(SESSION_ID);
        const read = (recorded: Recorded) => {
          view.revision = recorded.revision;
          apply(view, recorded, BigInt(recorded.revision));
        };
        compare([create, steps], read, (session) => {
          expect(shownBy(view)).toEqual(factsOf(session));
        });
      }),
      RUNS,
    );
  });

  it('lists show the same', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        let row: SessionRow | null = null;
        const read = ({ event, revision }: Recorded) => {
          row = project(row, { event, revision, position: BigInt(revision) });
        };
        compare([create, steps], read, (session) => {
          expect(listedAs(row)).toEqual(toBeListed(session));
        });
      }),
      RUNS,
    );
  });
});
