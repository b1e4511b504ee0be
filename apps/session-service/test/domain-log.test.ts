import {
  LOG_MARK_EVERY,
  type LogEvent,
  MAX_CHUNK_BYTES,
  type OutputItem,
  type OutputReport,
  Refusal,
  type Stream,
} from '@vmux/events';
import fc from 'fast-check';
import { closeLog, decideOutput, type LogFence } from '../src/domain/log-fold';
import {
  EMPTY_LOG,
  evolveLog,
  foldLog,
  type LogState,
  type RecordedLogEvent,
  sizesIn,
} from '../src/domain/log-state';
import { exec, SESSION_ID } from './domain-makers';

const MIB = 1_048_576;

const fenceOf = (change: Partial<LogFence> = {}): LogFence => ({
  revision: 50,
  writer: { runnerId: 'ns-1', epoch: 1, instance: 'i-1' },
  open: { [exec(1)]: 3, [exec(2)]: 4 },
  endedSizes: () => undefined,
  policy: { budgetBytes: 1024 * MIB, whenFull: 'truncate' },
  ...change,
});

const outputOf = (
  items: readonly OutputItem[],
  change: Partial<OutputReport> = {},
): OutputReport => ({
  sessionId: SESSION_ID,
  epoch: 1,
  instance: 'i-1',
  runnerId: 'ns-1',
  items,
  ...change,
});

const chunk = (
  text: string | Uint8Array,
  offset: number,
  number = 1,
  stream: Stream = 'stdout',
): OutputItem => ({
  kind: 'chunk',
  execId: exec(number),
  stream,
  offset,
  at: 7,
  bytes: typeof text === 'string' ? Buffer.from(text) : text,
});
const gap = (from: number, to: number): OutputItem => ({
  kind: 'gap',
  execId: exec(1),
  stream: 'stdout',
  from,
  to,
  reason: 'disk lost',
  at: 7,
});
const resize = (number: number, offset: number): OutputItem => ({
  kind: 'resize',
  execId: exec(1),
  number,
  offset,
  cols: 80,
  rows: 24,
  at: 7,
});

class Log {
  readonly events: RecordedLogEvent[] = [];
  state: LogState = EMPTY_LOG;

  take(report: OutputReport, fence: LogFence = fenceOf()) {
    const decision = decideOutput(report, this.state, fence);
    this.append(decision.events);
    return decision;
  }

  append(events: readonly LogEvent[]): void {
    for (const event of events) {
      const recorded = { event, revision: this.state.revision + 1 };
      this.events.push(recorded);
      this.state = evolveLog(this.state, recorded);
    }
  }

  get types(): string[] {
    return this.events.map(({ event }) => event.type);
  }

  bytesOf(number: number, stream: Stream): Buffer {
    return Buffer.concat(
      this.events.flatMap(({ event }) =>
        event.type === 'LogChunk' && event.execId === exec(number) && event.stream === stream
          ? [event.bytes]
          : [],
      ),
    );
  }
}

const refusalOf = (act: () => unknown): Refusal | null => {
  try {
    act();
    return null;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
};

describe('Output', () => {
  it('opens the log of its epoch with a mark and stands behind it', () => {
    const log = new Log();
    const { next, refused } = log.take(outputOf([chunk('ab', 0), chunk('c', 0, 2)]));
    expect(log.types).toEqual(['LogMark', 'LogChunk', 'LogChunk']);
    expect(log.events[2]?.event).toEqual({
      type: 'LogChunk',
      execId: exec(2),
      stream: 'stdout',
      offset: 0,
      sessionOffset: 2,
      at: 7,
      issued: 4,
      bytes: Buffer.from('c'),
    });
    expect(next).toEqual({
      [exec(1)]: { stdout: 2, stderr: 0, pty: 0 },
      [exec(2)]: { stdout: 1, stderr: 0, pty: 0 },
    });
    expect(refused).toBeNull();
  });

  it('that is there already is acknowledged without effect', () => {
    const log = new Log();
    log.take(outputOf([chunk('abc', 0)]));
    expect(log.take(outputOf([chunk('abc', 0), chunk('b', 1)]))).toMatchObject({
      events: [],
      refused: null,
      next: { [exec(1)]: { stdout: 3 } },
    });
  });

  it('that is there in part is taken from where the log ends', () => {
    const log = new Log();
    log.take(outputOf([chunk('abc', 0)]));
    log.take(outputOf([chunk('bcde', 1)]));
    expect(log.bytesOf(1, 'stdout').toString()).toBe('abcde');
    expect(log.events.at(-1)?.event).toMatchObject({ offset: 3, sessionOffset: 3 });
  });

  it('after a gap is refused with the offset expected, and what came before it is taken', () => {
    const log = new Log();
    const { refused } = log.take(outputOf([chunk('abc', 0), chunk('x', 5), chunk('z', 0, 2)]));
    expect(refused).toMatchObject({
      code: 'output_gap',
      facts: { execId: exec(1), stream: 'stdout', offset: 5, expected: 3 },
    });
    expect(log.types).toEqual(['LogMark', 'LogChunk']);
  });

  it('that no longer exists is an explicit gap, and both offsets move on', () => {
    const log = new Log();
    log.take(outputOf([chunk('abc', 0), gap(3, 10), chunk('k', 10)]));
    expect(log.types).toEqual(['LogMark', 'LogChunk', 'LogGap', 'LogChunk']);
    expect(log.events.at(-1)?.event).toMatchObject({ offset: 10, sessionOffset: 10 });
    expect(log.take(outputOf([gap(3, 10)])).events).toEqual([]);
    expect(log.take(outputOf([gap(12, 20)])).refused?.code).toBe('output_gap');
  });

  it('of streams is counted apart', () => {
    const log = new Log();
    log.take(outputOf([chunk('out', 0), chunk('err', 0, 1, 'stderr'), chunk('!', 3)]));
    expect(sizesIn(log.state, exec(1))).toEqual({ stdout: 4, stderr: 3, pty: 0 });
    expect(log.state.sessionOffset).toBe(7);
  });

  it('of a terminal has its resizes in place, each once', () => {
    const log = new Log();
    log.take(outputOf([resize(0, 0), chunk('ab', 0, 1, 'pty'), resize(1, 2)]));
    expect(log.types).toEqual(['LogMark', 'TerminalResized', 'LogChunk', 'TerminalResized']);
    expect(log.take(outputOf([resize(0, 0), resize(1, 2)])).events).toEqual([]);
    expect(log.take(outputOf([resize(7, 5)])).refused?.code).toBe('output_gap');
    expect(log.take(outputOf([resize(7, 2)])).events).toHaveLength(1);
    expect(log.take(outputOf([resize(6, 2)])).events).toEqual([]);
  });

  it('of an exec that has ended is no news up to its size, and refused beyond', () => {
    const log = new Log();
    const fence = fenceOf({
      open: {},
      endedSizes: (execId) => (execId === exec(1) ? { stdout: 3, stderr: 0, pty: 0 } : undefined),
    });
    expect(log.take(outputOf([chunk('abc', 0)]), fence)).toMatchObject({
      events: [],
      refused: null,
      next: { [exec(1)]: { stdout: 3 } },
    });
    expect(log.take(outputOf([chunk('abcd', 0)]), fence).refused?.code).toBe('exec_ended');
    expect(log.take(outputOf([chunk('a', 0, 9)]), fence).refused?.code).toBe('exec_not_found');
  });
});

describe('A log', () => {
  it.each([
    ['an older epoch', { epoch: 1 }, { writer: { runnerId: 'ns-1', epoch: 2, instance: 'i-2' } }],
    ['another instance', { instance: 'i-9' }, {}],
    ['no sandbox at all', {}, { writer: null }],
  ])('takes nothing of %s', (_, report, fence) => {
    const refused = refusalOf(() =>
      new Log().take(outputOf([chunk('a', 0)], report), fenceOf(fence)),
    );
    expect(refused?.code).toBe('stale_epoch');
  });

  it('takes nothing from another runner', () => {
    const refused = refusalOf(() => new Log().take(outputOf([], { runnerId: 'ns-2' })));
    expect(refused?.code).toBe('wrong_runner');
  });

  it('takes nothing after it is closed, until the next epoch opens it', () => {
    const log = new Log();
    log.take(outputOf([chunk('abc', 0)]));
    log.append(closeLog(log.state, fenceOf(), { epoch: 1, instance: 'i-1' }, 9));
    expect(closeLog(log.state, fenceOf(), { epoch: 1, instance: 'i-1' }, 9)).toEqual([]);
    expect(refusalOf(() => log.take(outputOf([chunk('d', 3)])))?.code).toBe('log_closed');
    expect(sizesIn(log.state, exec(1)).stdout).toBe(3);

    const next = fenceOf({
      revision: 60,
      writer: { runnerId: 'ns-1', epoch: 2, instance: 'i-2' },
      open: { [exec(3)]: 55 },
    });
    log.take(outputOf([chunk('x', 0, 3)], { epoch: 2, instance: 'i-2' }), next);
    expect(log.events.at(-2)?.event).toMatchObject({
      type: 'LogMark',
      epoch: 2,
      closed: false,
      sessionOffset: 3,
      streams: {},
    });
  });

  it('can be closed without ever having been open', () => {
    const log = new Log();
    log.append(closeLog(log.state, fenceOf(), { epoch: 1, instance: 'i-1' }, 9));
    expect(log.state).toMatchObject({ epoch: 1, closed: true, revision: 0 });
  });

  it('leaves ended execs out of its marks, but not those that its fence is too old to know', () => {
    const log = new Log();
    log.take(outputOf([chunk('a', 0), chunk('b', 0, 2), chunk('c', 0, 3)]), {
      ...fenceOf({ revision: 90 }),
      open: { [exec(1)]: 3, [exec(2)]: 4, [exec(3)]: 80 },
    });
    const older = fenceOf({ revision: 50, open: { [exec(2)]: 4 } });
    const state = { ...log.state, sessionRevision: 50 };
    const [mark] = closeLog(state, older, { epoch: 1, instance: 'i-1' }, 9);
    expect(mark).toMatchObject({ streams: { [exec(2)]: {}, [exec(3)]: {} } });
    expect(Object.keys(mark?.type === 'LogMark' ? mark.streams : {})).toHaveLength(2);
  });

  it('is not written by whoever knows less of the session than its last mark', () => {
    const log = new Log();
    log.take(outputOf([chunk('a', 0)]), fenceOf({ revision: 90 }));
    expect(
      refusalOf(() => log.take(outputOf([chunk('a', 0)]), fenceOf({ revision: 89 })))?.code,
    ).toBe('session_behind');
  });

  it('drops its oldest segments when it is over budget, at a mark, and says so', () => {
    const log = new Log();
    const fence = fenceOf({ policy: { budgetBytes: MIB, whenFull: 'truncate' } });
    const block = Buffer.alloc(MAX_CHUNK_BYTES);
    for (let index = 0; index < 64; index += 1) {
      log.take(outputOf([chunk(block, index * block.length)]), fence);
      expect(log.state.sessionOffset - log.state.firstOffset).toBeLessThanOrEqual(MIB);
    }
    const truncations = log.events.flatMap(({ event }) =>
      event.type === 'LogTruncated' ? [event] : [],
    );
    expect(truncations.length).toBeGreaterThan(10);
    for (const { revision, firstOffset } of truncations)
      expect(log.events[revision]?.event).toMatchObject({
        type: 'LogMark',
        sessionOffset: firstOffset,
      });
    expect(truncations.reduce((sum, each) => sum + each.droppedBytes, 0)).toBe(
      log.state.firstOffset,
    );
    expect(log.state.segments.length).toBeLessThanOrEqual(17);
  });

  it('holds output back when it is full and told to block, but takes the news of a gap', () => {
    const log = new Log();
    const fence = fenceOf({ policy: { budgetBytes: MIB, whenFull: 'block' } });
    const block = Buffer.alloc(MAX_CHUNK_BYTES);
    for (let index = 0; index < 16; index += 1)
      expect(log.take(outputOf([chunk(block, index * block.length)]), fence).refused).toBeNull();
    expect(log.take(outputOf([chunk('x', MIB)]), fence).refused?.code).toBe('log_full');
    expect(log.take(outputOf([gap(MIB, MIB + 5)]), fence).refused).toBeNull();
  });
});

describe('However output arrives', () => {
  const source = fc
    .tuple(fc.nat({ max: 255 }), fc.integer({ min: 1, max: 4_000 }))
    .map(([seed, length]) =>
      Uint8Array.from({ length }, (_, index) => seed + index * 7 + (index >> 8)),
    );
  const sources = fc.tuple(source, source, source);
  const slices = fc.array(
    fc.array(
      fc.record({ source: fc.nat({ max: 2 }), from: fc.nat(), length: fc.nat({ max: 60 }) }),
      { minLength: 1, maxLength: 4 },
    ),
    { minLength: 40, maxLength: 250, size: 'max' },
  );
  let longest = 0;
  afterAll(() => expect(longest).toBeGreaterThan(2 * LOG_MARK_EVERY));

  const places = [
    [1, 'stdout'],
    [1, 'stderr'],
    [2, 'stdout'],
  ] as const;

  /** Slices from anywhere, most of them near the end of what the log has. */
  function received(bytes: readonly Uint8Array[], reports: readonly (readonly Slice[])[]): Log {
    const log = new Log();
    for (const report of reports)
      log.take(outputOf(report.map((slice) => itemOf(slice, bytes, log.state))));
    for (const [source, [number, stream]] of places.entries()) {
      const rest = bytes[source]?.subarray(sizesIn(log.state, exec(number))[stream]);
      const offset = sizesIn(log.state, exec(number))[stream];
      if (rest && rest.length > 0) log.take(outputOf([chunk(rest, offset, number, stream)]));
    }
    longest = Math.max(longest, log.events.length);
    return log;
  }

  interface Slice {
    readonly source: number;
    readonly from: number;
    readonly length: number;
  }

  function itemOf({ source, from, length }: Slice, all: readonly Uint8Array[], log: LogState) {
    const bytes = all[source] ?? new Uint8Array(1);
    const [number, stream] = places[source] ?? places[0];
    const next = sizesIn(log, exec(number))[stream];
    const offset = Math.min(bytes.length - 1, Math.max(0, next - 20 + (from % 40)));
    return chunk(bytes.subarray(offset, offset + 1 + length), offset, number, stream);
  }

  it('the bytes are exact and every offset follows on the one before', () => {
    fc.assert(
      fc.property(sources, slices, (bytes, reports) => {
        const log = received(bytes, reports);
        const next = new Map<string, number>();
        let sessionOffset = 0;
        for (const { event } of log.events) {
          if (event.type !== 'LogChunk') continue;
          const name = `${event.execId} ${event.stream}`;
          expect(event.offset).toBe(next.get(name) ?? 0);
          expect(event.sessionOffset).toBe(sessionOffset);
          next.set(name, event.offset + event.bytes.length);
          sessionOffset += event.bytes.length;
        }
        for (const [source, [number, stream]] of places.entries())
          expect(log.bytesOf(number, stream).equals(bytes[source] ?? Buffer.alloc(0))).toBe(true);
      }),
      { numRuns: 100 },
    );
  });

  it('a mark stands at every 64th revision, and from any mark on the log can be taken up', () => {
    fc.assert(
      fc.property(sources, slices, (bytes, reports) => {
        const log = received(bytes, reports);
        for (const { event, revision } of log.events) {
          if (revision % LOG_MARK_EVERY === 0) expect(event.type).toBe('LogMark');
          if (event.type === 'LogMark')
            expect(foldLog(log.events.slice(revision))).toEqual(log.state);
        }
      }),
      { numRuns: 100 },
    );
  });
});
