import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fact, type SessionEvent } from '@vmux/events';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import fc from 'fast-check';
import { MemoryRows } from '../src/projections/memory-rows';
import { project } from '../src/projections/project';
import { NOTHING } from '../src/projections/row-store';
import {
  isLive,
  NO_USAGE,
  ROW_VERSION,
  type SessionRow,
  summaryOf,
} from '../src/projections/session-row';
import {
  created,
  exited,
  happenings,
  issued,
  placedHere,
  replayed,
  requested,
  started,
} from './projections-harness';

afterAll(releaseAll);

const id = 'web-0a1b';
const rowAfter = (...events: SessionEvent[]): SessionRow => {
  const history = placedHere(
    [created(id, 'ann', 1, { team: 'a' }), ...events].map((event) => ({ sessionId: id, event })),
  );
  const row = replayed(history).get(id);
  if (!row) throw new Error('there is no row');
  return row;
};

describe('A row of the session list', () => {
  it('begins with what the session was created with', () => {
    expect(summaryOf(rowAfter())).toEqual({
      id,
      owner: 'ann',
      name: 'web',
      status: 'starting',
      provider: 'ns',
      labels: { team: 'a' },
      createdAt: 1,
      updatedAt: 1,
      lastActivityAt: 1,
      endedAt: null,
      ports: [],
      runningExecs: 0,
      execs: { issued: 0, succeeded: 0, failed: 0, unknown: 0 },
      timings: { requestedAt: null, startedAt: null, stages: {} },
      usage: NO_USAGE,
    });
  });

  it('counts a rest that failed as activity, as the session itself does', () => {
    const failed = fact('SuspendFailed', { at: 9, epoch: 1, message: 'busy' });
    expect(rowAfter(requested(1, 2), started(1, 3), failed).lastActivityAt).toBe(9);
  });

  it('follows a session from its sandbox to its end', () => {
    const lost = {
      at: 9,
      epoch: 1,
      instance: 'i-1',
      evidence: { kind: 'probe', message: '' },
    } as const;
    const steps: readonly [SessionEvent, string, boolean][] = [
      [requested(1, 2), 'starting', true],
      [started(1, 3), 'running', true],
      [fact('SandboxSuspended', { at: 4, epoch: 1 }), 'suspended', true],
      [fact('SandboxResumed', { at: 5, epoch: 1 }), 'running', true],
      [fact('SandboxReleased', { at: 6, epoch: 7, instance: 'other' }), 'running', true],
      [fact('SandboxLost', lost), 'lost', false],
      [requested(2, 10, 'docker'), 'lost', true],
      [started(2, 11), 'running', true],
      [
        fact('StopRequested', { at: 12, cause: 'request', graceMs: 0, thenDelete: false }),
        'stopping',
        true,
      ],
      [fact('SandboxReleased', { at: 13, epoch: 2, instance: 'i-2' }), 'stopping', false],
      [fact('SessionStopped', { at: 14, cause: 'request' }), 'stopped', false],
    ];
    steps.forEach(([, status, live], index) => {
      const row = rowAfter(...steps.slice(0, index + 1).map(([event]) => event));
      expect([index, row.status, isLive(row)]).toEqual([index, status, live]);
    });
    const row = rowAfter(...steps.map(([event]) => event));
    expect(row).toMatchObject({ provider: 'docker', endedAt: 14, updatedAt: 14 });
    expect(row.usage.sandboxMs).toBe(9 - 3 + (13 - 11));
  });

  it('counts execs by how they ended and adds up what they used', () => {
    const row = rowAfter(
      requested(1, 2),
      started(1, 3),
      issued('e000000000001', 4),
      issued('e000000000002', 5),
      issued('e000000000003', 6),
      fact('ExecStarted', { at: 7, execId: 'e000000000003', epoch: 1, pid: 1 }),
      exited('e000000000001', 0, 8),
      exited('e000000000002', 3, 9),
      exited('e000000000002', 3, 10),
    );
    expect(row.execs).toEqual({ issued: 3, succeeded: 1, failed: 1, unknown: 0 });
    expect(summaryOf(row).runningExecs).toBe(1);
    expect(row.usage).toMatchObject({ cpuMs: 10, peakMemoryBytes: 7, outputBytes: 20 });
    expect(row.lastActivityAt).toBe(10);
  });

  it('keeps the first time of each stage of the newest sandbox', () => {
    const stage = (epoch: number, at: number) =>
      fact('StageReached', { at, epoch, stage: 'installed', execId: null });
    const row = rowAfter(requested(1, 2), started(1, 3), stage(1, 4), stage(1, 5));
    expect(row.timings).toEqual({ requestedAt: 2, startedAt: 3, stages: { installed: 4 } });
    expect(rowAfter(requested(1, 2), started(1, 3), stage(1, 4), requested(2, 6)).timings).toEqual({
      requestedAt: 6,
      startedAt: null,
      stages: {},
    });
  });

  it('has the ports that are open in its sandbox, in order', () => {
    const open = (port: number) =>
      fact('PortOpened', { at: 5, epoch: 1, port, address: '127.0.0.1', execId: null });
    const opened = [requested(1, 2), started(1, 3), open(9000), open(80), open(9000)];
    expect(rowAfter(...opened).ports).toEqual([80, 9000]);
    expect(rowAfter(...opened, fact('PortClosed', { at: 6, epoch: 1, port: 80 })).ports).toEqual([
      9000,
    ]);
  });

  it('is gone when the session is deleted', () => {
    const gone = fact('SessionDeleted', { at: 5, sessionId: id, owner: 'ann', createdBy: null });
    expect(project(rowAfter(), { event: gone, revision: 9, position: 99n })).toBeNull();
  });

  it('does not change when an event comes again', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 5000 }), fc.integer(), (seed, from) => {
        const all = placedHere(happenings(seed, 3, 60));
        const again = all.slice(0, Math.abs(from) % all.length);
        const lastDeletion = again.findLastIndex(({ event }) => event.type === 'SessionDeleted');
        // What follows a deletion is kept from coming again by its position, not by its revision.
        const repeated = again.slice(lastDeletion + 1);
        expect(replayed([...again, ...repeated, ...all.slice(again.length)])).toEqual(
          replayed(all),
        );
      }),
      { numRuns: 60 },
    );
  });
});

describe('Rows in memory', () => {
  const open = (file: string | null, faults: unknown[] = []) =>
    new MemoryRows({ file, onFault: (fault) => faults.push(fault) });
  const rowsOf = (seed: number) => replayed(placedHere(happenings(seed, 20, 400)));
  const stored = async (file: string, seed: number) => {
    const rows = open(file);
    const to = { position: 77n, complete: true, last: { stream: 's', revision: 1, id: 'i' } };
    expect(await rows.commit({ from: await rows.head(), to, rows: rowsOf(seed) })).toBe(true);
    await rows.close();
    return to;
  };
  const shown = async (rows: MemoryRows) =>
    Promise.all(['ann', 'bob'].map((owner) => rows.before(owner, null, 1000)));

  it('are taken up by the next process as they were', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 5000 }), async (seed) => {
        const file = join(temporaryDirectory(), 'rows');
        const head = await stored(file, seed);
        expect(statSync(file).mode & 0o777).toBe(0o600);
        const again = open(file);
        expect(await again.head()).toEqual(head);
        const expected = [...rowsOf(seed).values()];
        expect((await shown(again)).flat().sort(byId)).toEqual(expected.sort(byId));
        await again.close();
      }),
      { numRuns: 10 },
    );
  });

  const damages: readonly [string, (text: string) => string][] = [
    ['a row that was changed', (text) => text.replace('"status":"', '"status":"x')],
    ['its end missing', (text) => text.slice(0, -20)],
    ['a line missing', (text) => text.replace(/\n.*\n/, '\n')],
    ['no JSON', () => 'nonsense\n'],
    ['nothing in it', () => ''],
  ];
  it.each(damages)('begin from zero and say so when their file has %s', async (_, damage) => {
    const file = join(temporaryDirectory(), 'rows');
    await stored(file, 1);
    writeFileSync(file, damage(readFileSync(file, 'utf8')));
    const faults: unknown[] = [];
    const rows = open(file, faults);
    expect(await rows.head()).toEqual(NOTHING);
    expect((await shown(rows)).flat()).toEqual([]);
    expect(faults).toHaveLength(1);
    await rows.close();
  });

  it('begin from zero when another version wrote their file', async () => {
    const file = join(temporaryDirectory(), 'rows');
    await stored(file, 1);
    const text = readFileSync(file, 'utf8');
    const other = text.replace(`"version":${ROW_VERSION}`, `"version":${ROW_VERSION + 1}`);
    expect(other).not.toBe(text);
    writeFileSync(file, other);
    const rows = open(file);
    expect(await rows.head()).toEqual(NOTHING);
    await rows.close();
  });

  it('refuse a change that does not follow on', async () => {
    const rows = open(null);
    const to = { ...NOTHING, position: 5n };
    expect(await rows.commit({ from: NOTHING, to, rows: new Map() })).toBe(true);
    expect(await rows.commit({ from: NOTHING, to, rows: new Map() })).toBe(false);
    await rows.close();
  });
});

const byId = (a: SessionRow, b: SessionRow) => (a.id < b.id ? -1 : 1);
