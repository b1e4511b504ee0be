import { fact } from '@vmux/events';
import { releaseAll, type SeededRandom, seededRandom } from '@vmux/testing';
import { collectOutput } from '../src/application/exec-output';
import type { LogItem } from '../src/application/log-cursor';
import { LogReader, OffsetPastEnd } from '../src/application/log-reader';
import type { LogTarget } from '../src/application/log-target';
import { SessionReader } from '../src/application/session-reader';
import { CountedStore } from './counted-store';
import { LogBuilder } from './log-builder';

const EXEC = 'e000000000001';
const OTHER = 'e000000000002';

let store: CountedStore;
let random: SeededRandom;

beforeAll(async () => {
  store = await CountedStore.start();
});
afterAll(releaseAll);
beforeEach(() => {
  random = seededRandom(20_261_118);
});

function readers() {
  const sessions = new SessionReader(store, (fault) => {
    throw fault;
  });
  return { sessions, logs: new LogReader(store, sessions) };
}

async function targetOf(
  sessions: SessionReader,
  id: string,
  kind: LogTarget['kind'],
  execId = EXEC,
) {
  const exec = (await sessions.read(id))?.execs.get(execId);
  if (kind === 'session') return { kind } as const;
  if (!exec) throw new Error('no such exec');
  return kind === 'exec' ? ({ kind, exec } as const) : ({ kind, exec, stream: 'stdout' } as const);
}

const never = new AbortController().signal;

async function collect(
  logs: LogReader,
  sessionId: string,
  target: LogTarget,
  offset: number,
  extra: { follow?: boolean; revisionHint?: number; stopAfter?: number } = {},
): Promise<{ bytes: Buffer; items: LogItem[] }> {
  const { follow = false, stopAfter = Number.POSITIVE_INFINITY, ...hint } = extra;
  const items: LogItem[] = [];
  const pieces: Uint8Array[] = [];
  let taken = 0;
  const request = { sessionId, target, offset, follow, signal: never, ...hint };
  for await (const item of await logs.open(request)) {
    items.push(item);
    if (item.kind === 'bytes') {
      pieces.push(item.bytes);
      taken += item.bytes.length;
    }
    if (taken >= stopAfter) break;
  }
  return { bytes: Buffer.concat(pieces), items };
}

/** Two execs at once, in small pieces: what each wrote, and all of it in the order of the log. */
async function interleaved(id: string, pieces: number, forgetful = false) {
  const log = new LogBuilder(store, id);
  log.forgetful = forgetful;
  await log.created();
  await log.issued(OTHER);
  const whole: Buffer[] = [];
  const mine: Buffer[] = [];
  const put = (exec: string, bytes: Buffer) => {
    log.write(exec, 'stdout', bytes);
    whole.push(bytes);
    if (exec === EXEC) mine.push(bytes);
  };
  for (let at = 0; at < pieces / 4; at += 1) put(OTHER, random.bytes(1 + random.integer(40)));
  await log.flush();
  await log.issued(EXEC);
  for (let at = 0; at < pieces / 2; at += 1)
    put(random.pick([EXEC, OTHER]), random.bytes(1 + random.integer(40)));
  await log.flush();
  await log.exited(EXEC);
  for (let at = 0; at < pieces / 4; at += 1) put(OTHER, random.bytes(1 + random.integer(40)));
  await log.flush();
  return { log, whole: Buffer.concat(whole), mine: Buffer.concat(mine) };
}

describe('a log', () => {
  it('is read exactly from any offset, merged or as one exec’s stream, at a cost that does not grow with it', async () => {
    const id = 'long-0001';
    const { whole, mine } = await interleaved(id, 16_000);
    const { sessions, logs } = readers();
    await sessions.read(id);
    for (let round = 0; round < 25; round += 1) {
      for (const [kind, bytes] of [
        ['session', whole],
        ['stream', mine],
      ] as const) {
        const target = await targetOf(sessions, id, kind);
        const offset = random.integer(bytes.length - 64);
        store.countAgain();
        const { bytes: read } = await collect(logs, id, target, offset, { stopAfter: 64 });
        // Two ends, a search over 250 marks, the last page for the size, one page of events.
        expect(store.events).toBeLessThan(2 * 64 + 64 + 20);
        expect(read.subarray(0, 64)).toEqual(bytes.subarray(offset, offset + 64));
      }
    }
    for (const [kind, bytes] of [
      ['session', whole],
      ['stream', mine],
    ] as const) {
      const target = await targetOf(sessions, id, kind);
      const { bytes: read, items } = await collect(logs, id, target, 0);
      expect(read.equals(bytes)).toBe(true);
      expect(items.every((item) => item.kind === 'bytes')).toBe(true);
    }
  });

  it('of even pieces gives its first byte at any offset after a handful of reads', async () => {
    const id = 'even-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    await log.issued(EXEC);
    for (let at = 0; at < 8000; at += 1) log.write(EXEC, 'stdout', Buffer.from(`${at}`.padEnd(64)));
    await log.exited(EXEC);
    // The log goes on: what stands at its end says nothing of the exec.
    log.write(OTHER, 'stdout', Buffer.from('more'));
    await log.flush();
    const { sessions, logs } = readers();
    const target = await targetOf(sessions, id, 'stream');
    for (let round = 0; round < 20; round += 1) {
      const piece = random.integer(7990);
      store.countAgain();
      const offset = piece * 64;
      const { bytes } = await collect(logs, id, target, offset, { follow: true, stopAfter: 1 });
      expect(bytes.toString()).toBe(`${piece}`.padEnd(64));
      // Its two ends, the mark before the offset and the one after it, twice at most, and what lies between.
      expect(store.reads).toBeLessThanOrEqual(7);
    }
  });

  it('of one exec out of the merged output starts with the exec and ends with it', async () => {
    const id = 'merged-0001';
    const { mine } = await interleaved(id, 2_000);
    const { sessions, logs } = readers();
    const target = await targetOf(sessions, id, 'exec');
    const { bytes, items } = await collect(logs, id, target, 0);
    expect(bytes.equals(mine)).toBe(true);
    expect(items.some((item) => item.kind === 'gap')).toBe(false);
    const followed = await collect(logs, id, target, 0, { follow: true });
    expect(followed.bytes.equals(mine)).toBe(true);
  });

  it('is read exactly also where its marks say nothing about the exec', async () => {
    const id = 'forgetful-0001';
    const { mine } = await interleaved(id, 3_000, true);
    const { sessions, logs } = readers();
    const target = await targetOf(sessions, id, 'stream');
    for (let round = 0; round < 10; round += 1) {
      const offset = random.integer(mine.length);
      const { bytes } = await collect(logs, id, target, offset);
      expect(bytes.equals(mine.subarray(offset))).toBe(true);
    }
  });

  it('is resumed by a revision that fits, and not misled by one that does not', async () => {
    const id = 'hinted-0001';
    const { whole } = await interleaved(id, 2_000);
    const { logs } = readers();
    const target = { kind: 'session' } as const;
    const { items } = await collect(logs, id, target, 0);
    for (let round = 0; round < 20; round += 1) {
      const item = random.pick(items);
      if (item.kind !== 'bytes') continue;
      const offset = item.offset + item.bytes.length;
      for (const revisionHint of [item.revision, random.integer(3_000), 999_999]) {
        store.countAgain();
        const { bytes } = await collect(logs, id, target, offset, { revisionHint, stopAfter: 10 });
        expect(bytes.subarray(0, 10)).toEqual(
          whole.subarray(offset, offset + 10).subarray(0, bytes.length),
        );
      }
    }
  });

  it('of an exec that just wrote little is collected with one read, however long the log is', async () => {
    const id = 'short-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    await log.issued(OTHER);
    for (let at = 0; at < 300; at += 1) log.write(OTHER, 'stdout', Buffer.from(`line ${at}\n`));
    await log.issued(EXEC);
    log.write(EXEC, 'stderr', Buffer.from('oh'));
    log.write(OTHER, 'stdout', Buffer.from('beside'));
    log.write(EXEC, 'stdout', Buffer.from('here\n'));
    await log.exited(EXEC);
    const { sessions, logs } = readers();
    const exec = (await sessions.read(id))?.execs.get(EXEC);
    if (!exec) throw new Error('no such exec');
    store.countAgain();
    expect(await collectOutput(logs, id, exec, 1024, never)).toMatchObject({
      stdout: { text: 'here\n', size: 5, truncated: false, gap: null },
      stderr: { text: 'oh', size: 2, truncated: false, gap: null },
    });
    expect(store.reads).toBe(1);
    expect(store.events).toBeLessThan(16);
    // What does not lie within reach is read in full.
    for (let at = 0; at < 100; at += 1) log.write(OTHER, 'stdout', Buffer.from('more\n'));
    await log.flush();
    expect(await collectOutput(logs, id, exec, 1024, never)).toMatchObject({
      stdout: { text: 'here\n' },
      stderr: { text: 'oh' },
    });
  });

  it('shows where bytes are lost, and goes on after them', async () => {
    const id = 'gap-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    await log.issued(EXEC);
    log.write(EXEC, 'stdout', Buffer.from('before'));
    log.gap(EXEC, 'stdout', 100);
    log.write(EXEC, 'stdout', Buffer.from('after'));
    await log.flush();
    const { sessions, logs } = readers();
    for (const kind of ['session', 'stream', 'exec'] as const) {
      const target = await targetOf(sessions, id, kind);
      const { items } = await collect(logs, id, target, 3);
      expect(items).toMatchObject([
        { kind: 'bytes', offset: 3, bytes: Buffer.from('ore') },
        { kind: 'gap', from: 6, to: 106, reason: 'lost' },
        { kind: 'bytes', offset: 106, bytes: Buffer.from('after') },
      ]);
      const within = await collect(logs, id, target, 50);
      expect(within.items).toMatchObject([
        { kind: 'gap', from: 50, to: 106 },
        { kind: 'bytes', offset: 106 },
      ]);
    }
  });

  it('shows what retention dropped as a gap, merged and for each exec', async () => {
    const id = 'cut-0001';
    const { log, whole, mine } = await interleaved(id, 4_000);
    await log.truncateBefore(64 * 30);
    const { sessions, logs } = readers();
    for (const [kind, bytes] of [
      ['session', whole],
      ['stream', mine],
    ] as const) {
      const target = await targetOf(sessions, id, kind);
      const { items, bytes: left } = await collect(logs, id, target, 5);
      const [first, ...rest] = items;
      if (first?.kind !== 'gap') throw new Error('no gap');
      expect(first).toMatchObject({ from: 5, reason: 'truncated' });
      expect(rest.every((item) => item.kind === 'bytes')).toBe(true);
      expect(left.equals(bytes.subarray(first.to))).toBe(true);
      expect(left.length).toBeGreaterThan(100);
    }
  });

  it('says that an offset past its end does not exist, or waits for it, and never skips', async () => {
    const id = 'past-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    await log.issued(EXEC);
    log.write(EXEC, 'stdout', Buffer.from('0123456789'));
    await log.flush();
    const { sessions, logs } = readers();
    for (const kind of ['session', 'stream'] as const) {
      const target = await targetOf(sessions, id, kind);
      await expect(collect(logs, id, target, 11)).rejects.toThrow(
        new OffsetPastEnd(11, 10).message,
      );
      expect((await collect(logs, id, target, 10)).bytes).toHaveLength(0);
    }
    const target = await targetOf(sessions, id, 'stream');
    const waiting = collect(logs, id, target, 15, { follow: true });
    log.write(EXEC, 'stdout', Buffer.from('abcdefgh'));
    await log.flush();
    await log.exited(EXEC);
    expect((await waiting).bytes.toString()).toBe('fgh');
    const ended = await targetOf(sessions, id, 'stream');
    await expect(collect(logs, id, ended, 19, { follow: true })).rejects.toThrow(OffsetPastEnd);
  });

  it('is followed until its session has ended and every byte is out', async () => {
    const id = 'followed-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    await log.issued(EXEC);
    const { logs } = readers();
    const following = collect(logs, id, { kind: 'session' }, 0, { follow: true });
    const written: Buffer[] = [];
    for (let round = 0; round < 200; round += 1) {
      const bytes = random.bytes(100);
      written.push(bytes);
      log.write(EXEC, 'stdout', bytes);
      if (round % 10 === 0) await log.flush();
    }
    await log.flush();
    await log.exited(EXEC);
    await log.session(fact('SessionStopped', { at: 9, cause: 'request' }));
    expect((await following).bytes.equals(Buffer.concat(written))).toBe(true);
  });

  it('of a session that never wrote ends with the session', async () => {
    const id = 'silent-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    const { logs } = readers();
    const following = collect(logs, id, { kind: 'session' }, 0, { follow: true });
    await log.session(fact('SessionStopped', { at: 9, cause: 'request' }));
    expect((await following).items).toEqual([]);
  });
});
