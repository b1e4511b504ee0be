import type { Heartbeat, Making } from '@vmux/events';
import { runnerJson } from '../src/application/present';
import { RunnerBoard } from '../src/application/runner-board';

describe('What is only acted out', () => {
  const heartbeat = (runnerId: string, emulated: boolean): Heartbeat => ({
    ...{ runnerId, incarnation: 'one', at: 0, draining: false, tunnel: null },
    providers: [{ provider: 'modal', available: true, reason: null, capabilities: [], emulated }],
    capacity: { sandboxes: 0, maxSandboxes: 1, freeMemoryMiB: 0, freeDiskMiB: 0, cpus: 1, load: 0 },
  });

  it('is said to be so by who offers it, and of who offered it last while nobody does', () => {
    let now = 0;
    const board = new RunnerBoard(() => now);
    expect(board.isEmulated('modal')).toBe(false);
    board.take(heartbeat('acting', true));
    expect([board.isEmulated('modal'), board.isEmulated('ns')]).toEqual([true, false]);
    now = 60_000;
    expect(board.isEmulated('modal')).toBe(true);
    board.take(heartbeat('real', false));
    expect(board.isEmulated('modal')).toBe(false);
  });
});

describe('Sandboxes in the making', () => {
  const queued: Making = {
    sessionId: 'web-0a1b',
    epoch: 2,
    stage: 'queued',
    since: 5,
    detail: 'waiting for T4',
  };
  const heartbeat = (runnerId: string, making?: readonly Making[]): Heartbeat => ({
    runnerId,
    incarnation: 'one',
    at: 0,
    draining: false,
    providers: [],
    capacity: { sandboxes: 0, maxSandboxes: 1, freeMemoryMiB: 0, freeDiskMiB: 0, cpus: 1, load: 0 },
    tunnel: null,
    ...(making ? { making } : {}),
  });
  let now = 0;
  const board = new RunnerBoard(() => now);
  const { sessionId, epoch } = queued;

  it('are shown as their runner last said, and of no other epoch or runner', () => {
    board.take(heartbeat('old'));
    board.take(heartbeat('gpu', [queued]));
    expect(board.makingOf({ sessionId })).toEqual(queued);
    expect(board.makingOf({ sessionId, epoch, runnerId: 'gpu' })).toEqual(queued);
    expect(board.makingOf({ sessionId, epoch: 3, runnerId: 'gpu' })).toBeNull();
    expect(board.makingOf({ sessionId, epoch, runnerId: 'old' })).toBeNull();
  });

  it('are not told to who lists the runners: they are somebody’s', () => {
    const listed = board.list().map(runnerJson);
    expect(JSON.stringify(listed)).not.toContain(sessionId);
  });

  it('are not shown of a runner that fell silent', () => {
    now = 60_000;
    expect(board.makingOf({ sessionId })).toBeNull();
  });
});
