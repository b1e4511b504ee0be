import { AppendTooLarge } from '@vmux/event-store';
import { fact, type OutputReport, sessionStream } from '@vmux/events';
import { until } from '@vmux/testing';
import { chunksOf } from '../../../test/support/reporter';
import { Activity } from '../src/application/activity';
import { LogWriting } from '../src/application/log-writing';
import { OutputIngest } from '../src/application/output-ingest';
import { SessionHistory } from '../src/application/session-history';
import { SessionLog } from '../src/application/session-log';
import { Snapshots } from '../src/application/snapshots';
import { execSpecOf, specOf } from './client';
import { MemoryStore } from './memory-store';

const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const execId = 'e0123456789ab';
const KiB = 1024;

/** Sessions that run, without anybody having decided it. */
async function ingesting(sessions: readonly string[], isCrowded = () => false) {
  const store = new MemoryStore();
  const history = new SessionHistory(store, new Snapshots(store), quiet, 1e6);
  const spec = specOf();
  const created = { owner: 'a', name: 'n', attempt: 0, provider: 'fake', spec, lineage: null };
  const place = { runnerId: 'r1', provider: 'fake', capabilities: [] };
  for (const sessionId of sessions)
    await history.append(
      sessionId,
      history.none,
      [
        fact('SessionCreated', { ...created, at: 1, sessionId }),
        fact('SandboxRequested', {
          ...{ ...place, at: 1, epoch: 1, purpose: 'create', restore: null },
          allowBaseChange: false,
        }),
        fact('SandboxStarted', {
          ...{ at: 1, epoch: 1, instance: 'i1', runnerId: 'r1', base: null, restored: null },
        }),
        fact('ExecIssued', { at: 1, execId, epoch: 1, spec: execSpecOf('x'), follows: null }),
      ],
      { principal: 'system', correlationId: 'test' },
      sessionStream(sessionId),
    );
  const writing = new LogWriting(history, new SessionLog(store, 1e6), quiet);
  const ingest = new OutputIngest(
    writing,
    () => true,
    () => undefined,
    {
      ...{ maxAppends: 1, maxAppendBytes: 256 * KiB, maxSessionBytes: 512 * KiB },
      maxTotalBytes: 1024 * KiB,
    },
    isCrowded,
  );
  return { store, ingest };
}

const report = (sessionId: string, offset: number, bytes: number, size?: number): OutputReport => ({
  sessionId,
  epoch: 1,
  instance: 'i1',
  runnerId: 'r1',
  items: chunksOf(execId, offset, Buffer.alloc(bytes, 'x'), 'stdout', size),
});

/** Appends that stay under way until they are let go. */
function held(store: MemoryStore) {
  const order: string[] = [];
  const waiting: (() => void)[] = [];
  store.beforeAppend = (stream) => {
    order.push(stream);
    return new Promise((resolve) => waiting.push(resolve));
  };
  return { order, release: () => waiting.shift()?.(), count: () => waiting.length };
}

describe('ingest', () => {
  it('lets sessions take turns, however much one of them has waiting', async () => {
    const { store, ingest } = await ingesting(['loud-0000', 'calm-0000', 'mild-0000']);
    const appends = held(store);
    const done = [0, 1, 2, 3].map((n) =>
      ingest.take(report('loud-0000', n * 100 * KiB, 100 * KiB)),
    );
    done.push(ingest.take(report('calm-0000', 0, 10)), ingest.take(report('mild-0000', 0, 10)));
    for (let appended = 0; appended < 5; appended += 1) {
      await until(() => appends.count() === 1);
      appends.release();
    }
    await Promise.all(done);
    expect(appends.order.map((stream) => stream.slice(4, 8))).toEqual([
      'loud',
      'calm',
      'mild',
      'loud',
      'loud',
    ]);
  });

  it('lets a session that writes much rest beside others, for as long as it kept them waiting', async () => {
    let crowded = true;
    const { store, ingest } = await ingesting(['loud-0000', 'calm-0000'], () => crowded);
    jest.useFakeTimers();
    try {
      const appends = held(store);
      const done = [0, 1, 2].map((n) => ingest.take(report('loud-0000', n * 160 * KiB, 160 * KiB)));
      await jest.advanceTimersByTimeAsync(100);
      appends.release();
      await jest.advanceTimersByTimeAsync(199);
      expect(appends.count()).toBe(0);
      done.push(ingest.take(report('calm-0000', 0, 10)));
      await jest.advanceTimersByTimeAsync(0);
      expect(appends.count()).toBe(1);
      appends.release();
      await jest.advanceTimersByTimeAsync(1);
      expect(appends.count()).toBe(1);
      crowded = false;
      appends.release();
      await jest.advanceTimersByTimeAsync(0);
      expect(appends.count()).toBe(1);
      appends.release();
      await Promise.all(done);
    } finally {
      jest.useRealTimers();
    }
  });

  it('knows a session that has company', () => {
    let now = 0;
    const activity = new Activity(() => now);
    activity.note('loud-0000');
    expect(activity.besides('loud-0000')).toBe(false);
    activity.note('calm-0000');
    now = 900;
    activity.note('loud-0000');
    expect([activity.besides('loud-0000'), activity.besides('calm-0000')]).toEqual([true, true]);
    now = 1000;
    expect([activity.besides('loud-0000'), activity.besides('calm-0000')]).toEqual([false, true]);
  });

  it('puts what arrived during an append into the next one, side by side in one event', async () => {
    const { store, ingest } = await ingesting(['many-0000']);
    const appends = held(store);
    const done = Array.from({ length: 50 }, (_, n) =>
      ingest.take(report('many-0000', n * 100, 100)),
    );
    for (let appended = 0; appended < 2; appended += 1) {
      await until(() => appends.count() === 1);
      appends.release();
    }
    await Promise.all(done);
    const log = store.all.filter(({ stream }) => stream === 'log-many-0000');
    expect(log.map(({ type }) => type)).toEqual(['LogMark', 'LogChunk', 'LogChunk']);
    expect(log.at(-1)?.data).toHaveLength(4900);
  });

  it('takes no more of a session than its share, and always something of every session', async () => {
    const { store, ingest } = await ingesting(['loud-0000', 'calm-0000']);
    const appends = held(store);
    const taken = [0, 1, 2, 3].map((n) =>
      ingest.take(report('loud-0000', n * 120 * KiB, 120 * KiB)),
    );
    expect(() => ingest.take(report('loud-0000', 480 * KiB, 120 * KiB))).toThrow(
      'wait for answers',
    );
    const other = ingest.take(report('calm-0000', 0, 300 * KiB));
    const letGo = setInterval(() => appends.release(), 1);
    await Promise.all([...taken, other]);
    clearInterval(letGo);
    expect(ingest.bytesInFlight).toBe(0);
  });

  it('cuts an append that is too large for the store', async () => {
    const { store, ingest } = await ingesting(['wide-0000']);
    store.beforeAppend = (_, events) => {
      if (events.length > 20) throw new AppendTooLarge(1);
    };
    const reply = await ingest.take(report('wide-0000', 0, 200 * 1000, 1000));
    expect(reply).toMatchObject({ ok: true, next: { [execId]: { stdout: 200_000 } } });
    const scattered = Array.from({ length: 100 }, (_, n) => ({
      ...chunksOf(execId, n, Buffer.from('y'), n % 2 ? 'stdout' : 'stderr')[0],
      offset: n % 2 ? 200_000 + (n - 1) / 2 : n / 2,
    }));
    const items = scattered as OutputReport['items'];
    expect(await ingest.take({ ...report('wide-0000', 0, 0), items })).toMatchObject({
      ok: true,
      next: { [execId]: { stdout: 200_050, stderr: 50 } },
      refused: null,
    });
  });

  it('answers every report for itself when one of them leaves a gap', async () => {
    const { store, ingest } = await ingesting(['gaps-0000']);
    const appends = held(store);
    const [first, gap, second] = [0, 900, 100].map((offset) =>
      ingest.take(report('gaps-0000', offset, 100)),
    );
    for (let appended = 0; appended < 2; appended += 1) {
      await until(() => appends.count() === 1);
      appends.release();
    }
    expect(await first).toMatchObject({ ok: true, refused: null });
    expect(await gap).toMatchObject({ refused: { code: 'output_gap', facts: { expected: 100 } } });
    expect(await second).toMatchObject({ ok: true, refused: null });
  });
});
