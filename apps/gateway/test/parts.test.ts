import { join } from 'node:path';
import { type EventStore, type RecordedEvent, StoreUnavailable } from '@vmux/event-store';
import { projectRoot, releaseAll, startProcess, until } from '@vmux/testing';
import { canonicalDigest } from '../src/application/canonical-json';
import { RateLimit } from '../src/application/rate-limit';
import { GuardedStore } from '../src/application/store-guard';
import { Tickets } from '../src/application/tickets';
import { configFrom } from '../src/config';
import { millisecondsOf } from '../src/http/dto';
import { isOurs } from '../src/http/hooks';
import { isSameOrigin } from '../src/http/server';

afterAll(releaseAll);

const ENV = {
  EVENTSTORE_URL: 'esdb://127.0.0.1:1?tls=false',
  NATS_URL: 'nats://127.0.0.1:1',
  VMUX_ARTIFACTS_DIR: '/nowhere/artifacts',
  VMUX_KEYS_DIR: '/nowhere/keys',
};

describe('settings', () => {
  it.each(['EVENTSTORE_URL', 'NATS_URL', 'VMUX_ARTIFACTS_DIR', 'VMUX_KEYS_DIR'])(
    'without %s say what to set',
    (name) => {
      expect(() => configFrom({ ...ENV, [name]: '' })).toThrow(name);
    },
  );

  it('that are wrong say so', () => {
    expect(() => configFrom({ ...ENV, VMUX_PORT: 'http' })).toThrow('VMUX_PORT');
    expect(() => configFrom({ ...ENV, VMUX_HOST: '0.0.0.0' })).toThrow('VMUX_HOSTNAMES');
  });

  it('end the process before it serves anything', async () => {
    const main = join(projectRoot(), 'dist/apps/gateway/src/main.js');
    const started = startProcess({
      command: process.execPath,
      args: [main],
      env: { PATH: process.env.PATH },
      ready: () => undefined,
    });
    await expect(started).rejects.toThrow('EVENTSTORE_URL is not set');
  });
});

describe('a ticket', () => {
  const caller = { keyId: 'k', owner: 'o', scopes: ['sessions:read'], liveSessions: null } as const;

  it('lives for 30 seconds', async () => {
    let now = 0;
    const tickets = new Tickets(() => now);
    const early = await tickets.issue(caller, 'a-0000');
    const late = await tickets.issue(caller, 'a-0000');
    now = 29_999;
    expect(await tickets.redeem(early.ticket, 'a-0000')).toEqual(caller);
    now = 30_000;
    expect(await tickets.redeem(late.ticket, 'a-0000')).toBeNull();
  });

  it('is used up by trying it on another session', async () => {
    const tickets = new Tickets();
    const { ticket } = await tickets.issue(caller, 'a-0000');
    expect(await tickets.redeem(ticket, 'b-0000')).toBeNull();
    expect(await tickets.redeem(ticket, 'a-0000')).toBeNull();
  });
});

describe('a rate limit', () => {
  it('lets a burst through, then a steady rate, and knows how long to wait', () => {
    let now = 0;
    const limit = new RateLimit(2, 3, 100, () => now);
    expect([1, 2, 3, 4].map(() => limit.take('a'))).toEqual([null, null, null, 1]);
    expect(limit.take('b')).toBeNull();
    now = 500;
    expect([limit.take('a'), limit.take('a')]).toEqual([null, 1]);
  });

  it('remembers a bounded number of names', () => {
    const limit = new RateLimit(1, 1, 2, () => 0);
    for (const name of ['a', 'b', 'c']) limit.take(name);
    expect(limit.take('c')).not.toBeNull();
    expect(limit.take('a')).toBeNull();
  });
});

describe('names', () => {
  it.each([
    ['vmux.example.org', true],
    ['VMUX.example.org:8080', true],
    ['3000-a-1234.preview.example.org', true],
    ['preview.example.org', false],
    ['evilvmux.example.org', false],
    ['vmux.example.org.evil.com', false],
    ['vmux.example.org:port', false],
    ['', false],
    [undefined, false],
  ])('%s is ours: %s', (host, ours) => {
    expect(isOurs(host, ['vmux.example.org', '*.preview.example.org'])).toBe(ours);
  });

  it.each([
    ['http://localhost:80', 'localhost', true],
    ['http://localhost:8080', 'localhost:8080', true],
    ['http://localhost:8081', 'localhost:8080', false],
    ['null', 'localhost', false],
    ['http://evil.example', 'localhost', false],
  ])('the origin %s is that of %s: %s', (origin, host, same) => {
    expect(isSameOrigin(origin, host)).toBe(same);
  });
});

describe('what a key is bound to', () => {
  it('does not depend on the order of fields, and does on everything else', () => {
    const digest = canonicalDigest({ a: [1, { b: 'x', c: null }], d: undefined });
    expect(canonicalDigest({ a: [1, { c: null, b: 'x' }] })).toBe(digest);
    expect(canonicalDigest({ a: [1, { c: null, b: 'y' }] })).not.toBe(digest);
    expect(canonicalDigest({ a: [{ c: null, b: 'x' }, 1] })).not.toBe(digest);
    expect(canonicalDigest({ 'a","b': 1 })).not.toBe(canonicalDigest({ a: 1, b: 1 }));
  });
});

describe('a duration', () => {
  it.each([
    ['500', 500],
    ['500ms', 500],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
  ])('%s is %d ms', (text, ms) => {
    expect(millisecondsOf(text)).toBe(ms);
  });
});

describe('a store that is slow', () => {
  const event = { revision: 0 } as RecordedEvent;
  const storeWith = (answers: () => boolean): EventStore => ({
    append: () => Promise.reject(new Error('not asked for')),
    async *read(stream, { signal } = {}) {
      if (stream !== 'probe' && answers()) return yield event;
      await new Promise((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      );
    },
    subscribe: () => {
      throw new Error('not asked for');
    },
    close: async () => undefined,
  });
  const first = async (store: EventStore) => {
    for await (const each of store.read('stream')) return each;
    return null;
  };

  it('is not taken for one that is away as long as it answers anybody', async () => {
    let answers = true;
    let asked = 0;
    const inner = storeWith(() => answers);
    const counted: EventStore = {
      ...inner,
      read: (stream, options) => {
        if (stream === 'probe') asked += 1;
        return inner.read(stream, options);
      },
    };
    const guarded = new GuardedStore(counted, { probe: 'probe', everyMs: 5, answersWithinMs: 50 });
    try {
      await until(async () => (await first(guarded)) === event && asked > 3);
      expect(guarded.answers).toBe(true);
      answers = false;
      await until(() => !guarded.answers);
      await expect(first(guarded)).rejects.toBeInstanceOf(StoreUnavailable);
    } finally {
      await guarded.close();
    }
  });
});
