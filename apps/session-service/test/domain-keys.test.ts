import { createHash } from 'node:crypto';
import type { ClientCommand } from '@vmux/events';
import fc from 'fast-check';
import { decideCommand, decideReport } from '../src/domain/decide';
import {
  bytesOf,
  countOf,
  type KeyMemory,
  MOST_KEYS,
  NO_KEYS,
  REMEMBERED_KEYS,
  REMEMBERED_MS,
  RESERVED_KEYS,
  recall,
  remember,
  SEGMENT_KEYS,
} from '../src/domain/key-memory';
import { EMPTY_LOG } from '../src/domain/log-state';
import { exists, type Session } from '../src/domain/state';
import { command, hex, key, OWNER, report } from './domain-makers';
import { createSession, given, issue, running } from './domain-spec';

const hashed = (number: number): string =>
  createHash('sha256').update(String(number)).digest('base64url').slice(0, 22);

const used = (memory: KeyMemory, from: number, count: number, at: number): KeyMemory => {
  let state = memory;
  for (let each = from; each < from + count; each += 1)
    state = remember(state, hashed(each), hex('a'), each, at);
  return state;
};
const found = (memory: KeyMemory, number: number) => recall(memory, hashed(number), hex('a'));

describe('The memory of keys', () => {
  it('holds every key of the last 24 hours, and at least the last ten thousand, at whatever pace', () => {
    const bursts = fc.array(
      fc.record({
        count: fc.integer({ min: 1, max: 3 * SEGMENT_KEYS }),
        pauseMs: fc.integer({ min: 0, max: REMEMBERED_MS }),
      }),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(bursts, (each) => {
        const usedAt: number[] = [];
        let memory = NO_KEYS;
        let now = 0;
        for (const { count, pauseMs } of each) {
          now += pauseMs;
          memory = used(memory, usedAt.length, count, now);
          usedAt.push(...Array.from({ length: count }, () => now));
        }
        const total = usedAt.length;
        const missing = usedAt.findIndex((at, number) => {
          if (now - at >= REMEMBERED_MS && number < total - REMEMBERED_KEYS) return false;
          const recalled = number % 5 === 0 ? found(memory, number) : null;
          return recalled && !(recalled.kind === 'same' && recalled.revision === number);
        });
        expect(missing).toBe(-1);
        expect(countOf(memory)).toBeLessThanOrEqual(total);
      }),
      { numRuns: 20 },
    );
  });

  it('forgets what is older, once there are ten thousand others', () => {
    const few = used(NO_KEYS, 0, SEGMENT_KEYS, 0);
    const many = REMEMBERED_KEYS + SEGMENT_KEYS;
    const sameDay = used(few, SEGMENT_KEYS, many, REMEMBERED_MS - 1);
    const nextDay = used(few, SEGMENT_KEYS, many, REMEMBERED_MS);
    expect(found(sameDay, 0)).toEqual({ kind: 'same', revision: 0 });
    expect(found(nextDay, 0)).toEqual({ kind: 'new' });
    expect(found(nextDay, SEGMENT_KEYS)).toEqual({ kind: 'same', revision: SEGMENT_KEYS });
  });

  it('tells another request under a known key from the same one, old or new', () => {
    const memory = used(NO_KEYS, 0, SEGMENT_KEYS + 10, 0);
    for (const number of [0, SEGMENT_KEYS + 5])
      expect(recall(memory, hashed(number), hex('b'))).toEqual({ kind: 'other' });
    expect(recall(memory, hashed(-1), hex('a'))).toEqual({ kind: 'new' });
  });

  it('knows a key by its first event, also where a segment ends', () => {
    const one = remember(NO_KEYS, key('one'), hex('a'), 7, 0);
    expect(remember(one, key('one'), hex('a'), 8, 0)).toBe(one);
    const full = used(NO_KEYS, 0, SEGMENT_KEYS, 0);
    const again = remember(full, hashed(SEGMENT_KEYS - 1), hex('a'), SEGMENT_KEYS, 0);
    expect(again).toBe(full);
  });

  it('finds keys that start alike', () => {
    let memory = NO_KEYS;
    for (let each = 0; each < SEGMENT_KEYS + 3; each += 1)
      memory = remember(memory, key(`alike-${each}`), hex('a'), each, 0);
    expect(recall(memory, key('alike-17'), hex('a'))).toEqual({ kind: 'same', revision: 17 });
    expect(recall(memory, key('alike-no'), hex('a'))).toEqual({ kind: 'new' });
  });

  it('takes less than forty bytes a key', () => {
    const memory = used(NO_KEYS, 0, 10 * SEGMENT_KEYS, 0);
    expect(bytesOf(memory) / countOf(memory)).toBeLessThan(40);
  });
});

describe('A session that took as many requests within a day as it remembers', () => {
  const at = REMEMBERED_MS / 2;
  const { segments } = used(NO_KEYS, 0, SEGMENT_KEYS + 1, 0);
  const keysOf = (count: number): KeyMemory => ({
    ...NO_KEYS,
    segments: Array.from({ length: count / SEGMENT_KEYS }, () => segments).flat(),
  });
  const { session } = given(createSession(), ...running().slice(1), issue(1), issue(2));
  const remembering = (count: number): Session => {
    if (!exists(session)) throw new Error('it exists');
    return { ...session, keys: keysOf(count) };
  };
  const decided = (asked: ClientCommand, count: number, now = at) =>
    decideCommand({ ...asked, at: now, owner: OWNER }, remembering(count), EMPTY_LOG);
  const cancel = command(
    'CancelExec',
    { execId: 'e000000000001', graceMs: 0 },
    { key: key('cancel') },
  );

  it('refuses a new one, and says how long, rather than forget a key', () => {
    const facts = { max: MOST_KEYS, retryAfterMs: REMEMBERED_MS - at };
    expect(() => decided(issue(3), MOST_KEYS)).toThrow(
      expect.objectContaining({ code: 'too_many_keys', facts }),
    );
    expect(decided(issue(3), MOST_KEYS - SEGMENT_KEYS)).toMatchObject({ kind: 'append' });
  });

  it('still answers those that it remembers', () => {
    const repeated = { ...issue(3), key: hashed(5), digest: hex('a') };
    expect(decided(repeated, MOST_KEYS)).toEqual({ kind: 'repeated', revision: 5 });
  });

  it('takes new ones again when the oldest are a day old', () => {
    expect(decided(issue(3), MOST_KEYS, REMEMBERED_MS)).toMatchObject({ kind: 'append' });
  });

  it('can have its execs cancelled, be stopped and be deleted all the same', () => {
    for (const [asked, count] of [
      [cancel, MOST_KEYS],
      [command('StopSession', { graceMs: 0, force: false }), MOST_KEYS + RESERVED_KEYS],
      [command('DeleteSession', { force: true }), MOST_KEYS + RESERVED_KEYS],
    ] as const)
      expect(decided({ ...asked, key: key('ending') }, count)).toMatchObject({
        kind: 'append',
        events: expect.arrayContaining([expect.objectContaining({ version: 1 })]),
      });
    expect(() => decided(cancel, MOST_KEYS + RESERVED_KEYS)).toThrow(
      expect.objectContaining({ code: 'too_many_keys' }),
    );
  });

  it('is nobody else’s business', () => {
    const foreign = { ...issue(3), owner: 'bob', at };
    expect(() => decideCommand(foreign, remembering(MOST_KEYS), EMPTY_LOG)).toThrow(
      expect.objectContaining({ code: 'session_not_found' }),
    );
  });

  it('takes every report', () => {
    const opened = report('PortOpened', { port: 80, address: 'a', execId: null }, { at });
    const events = decideReport(opened, remembering(MOST_KEYS + RESERVED_KEYS), EMPTY_LOG);
    expect(events).toMatchObject([{ type: 'PortOpened' }]);
  });
});
