import { type Checkpoint, fact, type SessionEvent } from '@vmux/events';
import { isUndone } from '../src/application/checkpoint-view';
import { Ledger } from '../src/application/ledger';
import { apply, type SessionView, unborn } from '../src/application/session-view';
import { checkpointAt } from '../src/time/checkpoint-at';

const at = 1;
const checkpointOf = (checkpointId: string, epoch: number) =>
  ({ checkpointId, epoch, name: null }) as unknown as Checkpoint;

const asked = (checkpointId: string, epoch: number): SessionEvent =>
  fact('CheckpointRequested', {
    ...{ at, checkpointId, epoch, name: null, cause: 'request', hold: false },
  });
const taken = (checkpointId: string, epoch: number): SessionEvent =>
  fact('CheckpointTaken', { at, checkpoint: checkpointOf(checkpointId, epoch) });
const started = (epoch: number, checkpointId: string | null): SessionEvent =>
  fact('SandboxStarted', {
    ...{ at, epoch, instance: `i-${epoch}`, runnerId: 'ns-1', base: null },
    restored: checkpointId === null ? null : { checkpointId, manifestDigest: '' },
  });
const rolledBack = (epoch: number, checkpointId: string): readonly SessionEvent[] => [
  started(epoch, checkpointId),
  fact('RolledBack', { at, checkpointId, epoch }),
];
const issued = (execId: string, epoch: number | null): SessionEvent =>
  fact('ExecIssued', {
    ...{ at, execId, epoch, follows: null },
    spec: { command: { kind: 'shell', line: execId }, purpose: 'user', pty: null } as never,
  });
const dispatched = (execId: string, epoch: number): SessionEvent =>
  fact('ExecDispatched', { at, execId, epoch });
const exited = (execId: string, epoch: number): SessionEvent =>
  fact('ExecExited', {
    ...{ at, execId, epoch, outcome: { kind: 'exited', code: 0 } as const },
    ...{ sizes: { stdout: 0, stderr: 0, pty: 0 }, usage: null },
  });
const ran = (execId: string, epoch: number) => [issued(execId, epoch), exited(execId, epoch)];

function viewOf(...events: readonly SessionEvent[]): SessionView {
  const view = unborn('web-0a1b');
  for (const [revision, event] of events.entries()) {
    view.revision = revision;
    apply(view, { event, metadata: {} } as never, BigInt(revision));
  }
  return view;
}

const replayed = async (view: SessionView, from: string | null = null) => {
  const specOf = async () => ({}) as never;
  return (await new Ledger({ specOf }).since(view, from)).replay.map(({ execId }) => execId);
};

/** One checkpoint after the other, and back to the first. */
const wentBack = [
  started(1, null),
  ...ran('before', 1),
  ...[asked('c1', 1), taken('c1', 1)],
  ...ran('between', 1),
  ...[asked('c2', 1), taken('c2', 1)],
  ...ran('after', 1),
  ...rolledBack(2, 'c1'),
  ...ran('since', 2),
];

describe('A session that went back to a checkpoint', () => {
  const view = viewOf(...wentBack);

  it('is forked at a point after that from what it went back to, and at one before from what it had', () => {
    expect(checkpointAt(view, view.revision)).toBe('c1');
    expect(checkpointAt(view, 9)).toBe('c2');
  });

  it('replays what ran since, and not what was undone', async () => {
    expect(await replayed(view)).toEqual(['since']);
    expect(await replayed(view, 'c2')).toEqual(['since']);
  });

  it('replays what was asked for while it went back: it ran afterwards', async () => {
    const [begin, back] = [wentBack.slice(0, -4), wentBack.slice(-4)];
    const queued = viewOf(
      ...[...begin, issued('waits', null), ...back],
      ...[dispatched('waits', 2), exited('waits', 2)],
    );
    expect(await replayed(queued)).toEqual(['waits', 'since']);
  });

  it('has what was undone again when it goes forward to a checkpoint that holds it', async () => {
    const forward = viewOf(...wentBack, ...rolledBack(3, 'c2'), ...ran('last', 3));
    expect(checkpointAt(forward, forward.revision)).toBe('c2');
    expect(await replayed(forward)).toEqual(['last']);
    expect(await replayed(forward, 'c1')).toEqual(['between', 'last']);
    const standing = [...forward.execs.values()].filter(
      ({ issuedRevision: revision, epoch }) => !isUndone(forward, { revision, epoch }),
    );
    expect(standing.map(({ id }) => id)).toEqual(['before', 'between', 'last']);
  });
});

describe('A session that lost its sandbox', () => {
  const lost = [
    started(1, null),
    ...[asked('c1', 1), taken('c1', 1)],
    ...ran('first', 1),
    started(2, 'c1'),
    ...ran('second', 2),
  ];

  it('replays everything since its last checkpoint: nobody wanted that undone', async () => {
    expect(await replayed(viewOf(...lost))).toEqual(['first', 'second']);
  });

  it('replays since the checkpoint that it came back from, also when that was not the newest', async () => {
    const newer = [asked('c2', 2), taken('c2', 2), ...ran('third', 2), started(3, 'c1')];
    const view = viewOf(...lost, ...newer, ...ran('fourth', 3));
    expect(await replayed(view)).toEqual(['first', 'second', 'third', 'fourth']);
    expect(await replayed(view, 'c2')).toEqual(['third', 'fourth']);
    expect(checkpointAt(view, view.revision)).toBe('c1');
  });
});

describe('A checkpoint that is being taken', () => {
  it('is not that of a point in the meantime: it may hold what came after that', () => {
    const view = viewOf(
      ...[started(1, null), asked('c1', 1), taken('c1', 1)],
      ...[asked('c2', 1), issued('meanwhile', 1), taken('c2', 1)],
    );
    expect(checkpointAt(view, 4)).toBe('c1');
    expect(checkpointAt(view, 5)).toBe('c2');
  });
});
