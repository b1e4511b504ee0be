import {
  type Checkpoint,
  type ExecSpec,
  fact,
  type Recorded,
  type SessionEvent,
} from '@vmux/events';
import { epochsFence, execsOnce, inWords, requestsEnd, shortest } from './laws';
import { type TreeFacts, treesFollow, withCheckpointsOf } from './tree-law';
import { lookOf, NO_TREE } from './trees';

const at = 0;
const digest = (letter: string) => letter.repeat(64);
const checkpoint = (checkpointId: string, manifestDigest = digest('a')): Checkpoint => ({
  ...{ checkpointId, name: null, epoch: 1, artifact: digest('b'), manifestDigest },
  ...{ bytes: 1, newBytes: 1, native: null },
  base: { image: null, digest: null, distribution: null, architecture: 'x64' },
});
const spec = {} as ExecSpec;
const sizes = { stdout: 0, stderr: 0, pty: 0 };

const requested = (epoch: number, restore: Checkpoint | null = null): SessionEvent =>
  fact('SandboxRequested', {
    ...{ at, epoch, runnerId: 'local', provider: 'ns', capabilities: [], restore },
    ...{ purpose: restore ? 'rollback' : 'create', allowBaseChange: false },
  });
const started = (epoch: number, from: Checkpoint | null = null): SessionEvent =>
  fact('SandboxStarted', {
    ...{ at, epoch, instance: `i${epoch}`, runnerId: 'local', base: null },
    restored: from && { checkpointId: from.checkpointId, manifestDigest: from.manifestDigest },
  });
const ran = (execId: string, epoch: number): SessionEvent[] => [
  fact('ExecIssued', { at, execId, epoch, spec, follows: null }),
  fact('ExecStarted', { at, execId, epoch, pid: 1 }),
  fact('ExecExited', {
    ...{ at, execId, epoch, outcome: { kind: 'exited', code: 0 }, sizes, usage: null },
  }),
];
const asked = (checkpointId: string): SessionEvent =>
  fact('CheckpointRequested', {
    ...{ at, checkpointId, epoch: 1, name: null, cause: 'request', hold: false },
  });
const taken = (checkpointId: string): SessionEvent =>
  fact('CheckpointTaken', { at, checkpoint: checkpoint(checkpointId) });
const rollback = (checkpointId: string): SessionEvent =>
  fact('RollbackRequested', { at, checkpointId, allowBaseChange: false });
const rolledBack = (checkpointId: string, epoch: number): SessionEvent =>
  fact('RolledBack', { at, checkpointId, epoch });

const history = (...events: SessionEvent[]): Recorded[] =>
  events.map((event, revision) => ({
    ...{ event, revision },
    metadata: { principal: 'system', correlationId: 'test', version: 1 },
  }));

const WRITES = new Map([
  ['e1', 11],
  ['e2', 12],
]);
const facts = (looks: Record<string, string>): TreeFacts => ({
  ...{ writes: WRITES, looks: new Map(Object.entries(looks)), checkpoints: new Map() },
});
const toCheckpoint = [requested(1), started(1), ...ran('e1', 1), asked('c1'), taken('c1')];
const back = [
  ...[rollback('c1'), requested(2, checkpoint('c1')), started(2, checkpoint('c1'))],
  rolledBack('c1', 2),
];

describe('The laws of the chaos run', () => {
  it('know a tree by its history: a rollback brings back what the checkpoint held', () => {
    const events = history(...toCheckpoint, ...ran('e2', 1), ...back, ...ran('look', 2));
    expect(treesFollow(facts({ look: lookOf(11) }))(events)).toEqual([]);
    expect(treesFollow(facts({ look: lookOf(12) }))(events)).toHaveLength(1);
    expect(treesFollow(facts({ look: NO_TREE }))(events)).toHaveLength(1);
  });

  it('allow either tree while one is being written, and no third one', () => {
    const [issued, begun, ended] = ran('e2', 1) as [SessionEvent, SessionEvent, SessionEvent];
    const during = [issued, begun, asked('c2'), taken('c2'), ended];
    const again = [rollback('c2'), requested(2, checkpoint('c2')), started(2, checkpoint('c2'))];
    const events = history(...toCheckpoint, ...during, ...again, ...ran('look', 2));
    for (const version of [11, 12])
      expect(treesFollow(facts({ look: lookOf(version) }))(events)).toEqual([]);
    expect(treesFollow(facts({ look: NO_TREE }))(events)).toHaveLength(1);
  });

  it('know a fork by its parent’s checkpoint', () => {
    const known = withCheckpointsOf(facts({ look: lookOf(11) }), history(...toCheckpoint));
    const child = history(requested(1, checkpoint('c1')), started(1, checkpoint('c1')));
    expect(treesFollow(known)([...child, ...history(...ran('look', 1))])).toEqual([]);
    expect(treesFollow(facts({ look: lookOf(11) }))(child)).toHaveLength(1);
  });

  it('see an epoch that does not grow, or begins with another checkpoint', () => {
    expect(epochsFence(history(...toCheckpoint, ...back))).toEqual([]);
    expect(epochsFence(history(requested(2), started(2), requested(2), started(2)))).toHaveLength(
      2,
    );
    const other = started(2, checkpoint('c1', digest('c')));
    expect(epochsFence(history(requested(2, checkpoint('c1')), other))).toHaveLength(1);
  });

  it('see a request that never ends, one that is recorded twice, and one fork too many', () => {
    expect(requestsEnd(history(...toCheckpoint, ...back))).toEqual([]);
    expect(requestsEnd(history(rollback('c1')))).toHaveLength(1);
    expect(requestsEnd(history(asked('c1')))).toHaveLength(1);
    expect(requestsEnd(history(rollback('c1'), rollback('c1'), rolledBack('c1', 2)))).toHaveLength(
      1,
    );
    const stop = fact('StopRequested', { at, cause: 'request', graceMs: 0, thenDelete: false });
    const failed = fact('CheckpointFailed', { at, checkpointId: 'c1', message: 'stopped' });
    expect(requestsEnd(history(asked('c1'), stop, failed))).toEqual([]);
    expect(requestsEnd(history(stop, failed))).toHaveLength(1);
    const fork = fact('ForkRequested', {
      ...{ at, forkId: 'f1', checkpointId: 'c1', name: 'child', count: 1, provider: 'ns' },
    });
    const forked = (index: number) =>
      fact('Forked', { at, forkId: 'f1', index, child: `child-${index}`, checkpointId: 'c1' });
    expect(requestsEnd(history(fork))).toHaveLength(1);
    expect(requestsEnd(history(fork, forked(0)))).toEqual([]);
    expect(requestsEnd(history(fork, forked(0), forked(1)))).toHaveLength(1);
  });

  it('see an exec that starts or ends twice, and an outcome that is unknown for no reason', () => {
    expect(execsOnce(history(...ran('e1', 1)))).toEqual([]);
    expect(execsOnce(history(...ran('e1', 1), ...ran('e1', 1)))).toHaveLength(2);
    const unknown = fact('ExecOutcomeUnknown', {
      ...{ at, execId: 'e1', epoch: 1, reason: 'sandbox_lost', sizes },
    });
    const lost = fact('SandboxLost', {
      ...{ at, epoch: 1, instance: 'i1', evidence: { kind: 'probe', message: 'gone' } },
    });
    expect(execsOnce(history(lost, unknown))).toEqual([]);
    expect(execsOnce(history(unknown))).toHaveLength(1);
  });

  it('are shown broken by the shortest history that breaks them, out of a long one', () => {
    const noise = (from: number) =>
      Array.from({ length: 200 }, (_, number) => ran(`n${from + number}`, 1)).flat();
    const events = history(
      ...[requested(1), started(1), ...noise(0), ...ran('e1', 1), asked('c0'), taken('c0')],
      ...[...noise(1000), asked('c1'), taken('c1'), ...ran('e2', 1), ...back],
      ...[...ran('look', 2), ...noise(2000)],
    );
    const law = treesFollow(facts({ look: lookOf(12) }));
    const [breach] = law(events);
    if (!breach) throw new Error('nothing is broken');
    expect(breach.what).toContain('it must be 11');
    expect(shortest(events, law, breach).map((each) => inWords(each).split(' ')[1])).toEqual([
      ...['ExecIssued', 'ExecExited', 'CheckpointTaken', 'SandboxStarted'],
      ...['ExecIssued', 'ExecExited'],
    ]);
  });
});
