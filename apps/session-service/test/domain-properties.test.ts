import { isDeepStrictEqual } from 'node:util';
import { Refusal, type SessionEvent } from '@vmux/events';
import fc from 'fast-check';
import { evolve, fold } from '../src/domain/evolve';
import { react } from '../src/domain/react';
import { exists, isLiving, openExecs, type Session, UNBORN } from '../src/domain/state';
import { anyReport, creation, wildSteps } from './domain-arbitraries';
import { played } from './domain-play';
import { isReport } from './domain-spec';
import type { World } from './domain-world';

const RUNS = { numRuns: Number(process.env.PROPERTY_RUNS ?? 150) };

const anyPicks = fc.array(fc.nat(), { maxLength: 50, size: 'max' });

/** Fast while they are equal, and telling when they are not. */
function expectSame(actual: Session, expected: Session): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toEqual(expected);
}

const eventsOf = (world: World): SessionEvent[] => world.past.history.map(({ event }) => event);

describe('Whatever happens', () => {
  it('replaying any prefix, from the start or from a stored state, gives the live state', () => {
    fc.assert(
      fc.property(creation, wildSteps, fc.nat(), (create, steps, cut) => {
        const live = new Map<number, Session>();
        const { past } = played(create, steps, ({ session }) =>
          live.set(session.revision, session),
        );
        let replayed: Session = UNBORN;
        for (const recorded of past.history) {
          replayed = evolve(replayed, recorded);
          expectSame(replayed, live.get(recorded.revision) ?? replayed);
        }
        const at = cut % (past.history.length + 1);
        const stored = JSON.parse(JSON.stringify(fold(past.history.slice(0, at)))) as Session;
        expectSame(fold(past.history.slice(at), stored), past.session);
      }),
      RUNS,
    );
  });

  it('delivering again, in any order, what clients and runners sent before changes nothing', () => {
    fc.assert(
      fc.property(creation, wildSteps, anyPicks, (create, steps, picks) => {
        const world = played(create, steps);
        const { session } = world;
        const again = world.effective.filter((message) => isReport(message) || 'key' in message);
        for (const pick of picks) {
          const message = again[pick % again.length];
          if (message) world.deliver(message);
          expectSame(world.session, session);
        }
      }),
      RUNS,
    );
  });

  it('a report of an older epoch changes nothing but the debt of destroying that sandbox', () => {
    fc.assert(
      fc.property(creation, wildSteps, fc.array(anyReport), (create, steps, reports) => {
        const world = played(create, steps);
        for (const report of reports) {
          const { session } = world;
          if (!exists(session)) return;
          const now = session.current?.epoch ?? session.pending?.epoch ?? session.lastEpoch + 1;
          // The form that a runner keeps of a checkpoint outlives the sandbox that it was taken of.
          const isOfCheckpoint = ['CheckpointArchived', 'ArchiveFailed'].includes(report.type);
          if (report.epoch >= now || isOfCheckpoint) continue;
          world.deliver(report);
          const { retired: _, revision: __, ...after } = world.session as typeof session;
          expect(session).toMatchObject(after);
          if (report.type !== 'SandboxReleased') expect(world.session).toEqual(session);
        }
      }),
      RUNS,
    );
  });

  it('nothing is owed any more once everything owed is done', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        const world = played(create, steps);
        world.settle();
        const { orders, place, deadlines, forks } = react(world.session, world.now);
        expect({ orders, place, deadlines, forks }).toEqual({
          orders: [],
          place: null,
          deadlines: [],
          forks: [],
        });
        if (isLiving(world.session)) expect(openExecs(world.session).filter(isStuck)).toEqual([]);

        function isStuck({ epoch }: { readonly epoch: number | null }): boolean {
          return epoch === null && exists(world.session) && world.session.status === 'running';
        }
      }),
      RUNS,
    );
  });

  it('nothing is thrown but refusals that say what to do', () => {
    fc.assert(
      fc.property(creation, wildSteps, fc.array(anyReport), (create, steps, reports) => {
        const world = played(create, steps);
        for (const report of reports) {
          const result = world.deliver(report);
          if (result instanceof Refusal) expect(result.message).not.toBe('');
        }
      }),
      RUNS,
    );
  });

  it('there is one current sandbox, at most one pending, and no exec of a sandbox that is gone', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        played(create, steps, ({ session }) => {
          if (!exists(session)) return;
          const { current, pending, lastEpoch } = session;
          const older = current?.epoch ?? 0;
          const newer = pending?.epoch ?? lastEpoch;
          const foreign = openExecs(session).filter(({ epoch }) => (epoch ?? older) !== older);
          const needsOne = session.status === 'running' || session.status === 'suspended';
          const facts = {
            ordered: older <= newer && newer <= lastEpoch && older !== pending?.epoch,
            foreign: foreign.length,
            missing: needsOne && current === null,
          };
          if (!facts.ordered || facts.foreign || facts.missing)
            expect(facts).toEqual({ ordered: true, foreign: 0, missing: false });
        });
      }),
      RUNS,
    );
  });

  it('an exec is issued once, dispatched at most once and ended at most once, in that order', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        const world = played(create, steps);
        world.settle();
        const seen = new Map<string, string[]>();
        for (const event of eventsOf(world)) {
          const stage = stageOf(event);
          if (stage) seen.set(stage[0], [...(seen.get(stage[0]) ?? []), stage[1]]);
        }
        for (const stages of seen.values())
          expect(stages.join(' ')).toMatch(
            /^(issued dispatched( started)?( ended)?|issued( never)?)$/,
          );
      }),
      RUNS,
    );
  });

  it('epochs only grow', () => {
    fc.assert(
      fc.property(creation, wildSteps, (create, steps) => {
        const started = eventsOf(played(create, steps)).flatMap((event) =>
          event.type === 'SandboxStarted' ? [event.data.epoch] : [],
        );
        expect(started).toEqual([...new Set(started)].sort((a, b) => a - b));
      }),
      RUNS,
    );
  });
});

/** An exec's stages; issuing it to a running sandbox dispatches it. */
function stageOf(event: SessionEvent): [string, string] | null {
  switch (event.type) {
    case 'ExecIssued':
      return [event.data.execId, event.data.epoch === null ? 'issued' : 'issued dispatched'];
    case 'ExecDispatched':
      return [event.data.execId, 'dispatched'];
    case 'ExecStarted':
      return [event.data.execId, 'started'];
    case 'ExecExited':
      return [event.data.execId, event.data.epoch === null ? 'never' : 'ended'];
    case 'ExecOutcomeUnknown':
      return [event.data.execId, 'ended'];
    default:
      return null;
  }
}
