import { randomUUID } from 'node:crypto';
import { type JsonObject, StoreUnavailable } from '@vmux/event-store';
import {
  type ClientCommand,
  deriveExecId,
  keysStream,
  type Placement,
  type Report,
  scopedKey,
  sessionIdOf,
  snapshotStream,
} from '@vmux/events';
import { seededRandom, until } from '@vmux/testing';
import { OpenSessions } from '../src/application/open-sessions';
import { SessionHistory } from '../src/application/session-history';
import { SNAPSHOT_EVERY, type Snapshot, Snapshots } from '../src/application/snapshots';
import { decideCommand, decideReport } from '../src/domain/decide';
import { RECORD_CHARS, REMEMBERED_MS, remember, SEGMENT_KEYS } from '../src/domain/key-memory';
import { EMPTY_LOG } from '../src/domain/log-state';
import { exists } from '../src/domain/state';
import { execSpecOf, specOf } from './client';
import { MemoryStore } from './memory-store';

const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const owner = 'alice';
const placement: Placement = { runnerId: 'r1', provider: 'fake', capabilities: ['pty'] };
const key = scopedKey(owner, 'create', 'k');
const sessionId = sessionIdOf('long', owner, key, 0);
const cause = { principal: 'system', correlationId: 'test' };

const historyOn = (store: MemoryStore) =>
  new SessionHistory(store, new Snapshots(store), quiet, 1_000_000);

const command = (type: string, data: unknown, at: number, commandKey = key): ClientCommand =>
  ({
    type,
    data,
    at,
    sessionId,
    key: commandKey,
    digest: 'd'.repeat(64),
    owner,
    principal: 'key:1',
    correlationId: 'c',
    traceparent: null,
    placement,
  }) as ClientCommand;

const report = (type: string, data: unknown, at: number): Report =>
  ({ type, data, at, sessionId, epoch: 1, instance: 'i1', runnerId: 'r1' }) as Report;

/** A session that runs execs, one after the other, until it has so many events. */
async function lived(store: MemoryStore, events: number): Promise<void> {
  const history = historyOn(store);
  const random = seededRandom(events);
  let at = 1000;
  const step = async (message: ClientCommand | Report) => {
    at += random.integer(5000);
    const folded = history.guess(sessionId) ?? history.none;
    const isReport = 'epoch' in message;
    const decision = isReport
      ? decideReport({ ...message, at }, folded.session, EMPTY_LOG)
      : decideCommand({ ...message, at }, folded.session, EMPTY_LOG);
    const decided = 'kind' in decision && decision.kind === 'append' ? decision.events : decision;
    if (!Array.isArray(decided) || decided.length === 0) return;
    const known = isReport ? cause : { ...cause, key: message.key, digest: message.digest };
    await history.append(sessionId, folded, decided, known, randomUUID());
  };
  const create = { name: 'long', attempt: 0, provider: 'fake', spec: specOf(), lineage: null };
  await step(command('CreateSession', create, at));
  await step(report('SandboxReady', { base: null, restoredDigest: null }, at));
  while ((history.guess(sessionId)?.session.revision ?? 0) < events) {
    const execKey = scopedKey(owner, 'exec', random.uuid());
    const execId = deriveExecId(sessionId, execKey);
    await step(command('IssueExec', { execId, spec: execSpecOf('x') }, at, execKey));
    await step(report('ExecStarted', { execId, pid: 1 }, at));
    if (random.integer(3) === 0)
      await step(
        report('PortOpened', { port: 8000 + random.integer(5), address: 'a', execId }, at),
      );
    const sizes = { stdout: 0, stderr: 0, pty: 0 };
    const outcome = { kind: 'exited', code: 0 };
    await step(report('ExecExited', { execId, outcome, sizes, usage: null }, at));
  }
}

const snapshotsIn = (store: MemoryStore) =>
  store.all.filter(({ stream }) => stream === snapshotStream(sessionId));

describe('a snapshot', () => {
  it('is taken every 256 events and is equal to the replay of all of them', async () => {
    const store = new MemoryStore();
    await lived(store, 3 * SNAPSHOT_EVERY + 20);
    await until(() => snapshotsIn(store).length === 3);
    const fresh = historyOn(store);
    store.reads = 0;
    const withSnapshot = await fresh.load(sessionId);
    expect(withSnapshot).toEqual(await fresh.replay(sessionId));
    expect(withSnapshot.session.revision).toBeGreaterThanOrEqual(3 * SNAPSHOT_EVERY);
  });

  it('is read in place of what it holds', async () => {
    const store = new MemoryStore();
    await lived(store, SNAPSHOT_EVERY + 5);
    await until(() => snapshotsIn(store).length === 1);
    const read: number[] = [];
    const spying = Object.assign(Object.create(store) as MemoryStore, {
      read: (stream: string, options: { from?: number } = {}) => {
        if (stream.startsWith('session-')) read.push(options.from ?? 0);
        return store.read(stream, options);
      },
    });
    await historyOn(spying).load(sessionId);
    expect(read).toHaveLength(1);
    expect(read[0]).toBeGreaterThanOrEqual(SNAPSHOT_EVERY - 1);
  });

  it('of another fold version is ignored, and so is one that says another revision', async () => {
    const oddities: readonly JsonObject[] = [{ foldVersion: 999 }, { revision: 3 }];
    for (const odd of oddities) {
      const store = new MemoryStore();
      await lived(store, SNAPSHOT_EVERY + 5);
      const snapshot = await until(() => snapshotsIn(store)[0]);
      await store.append(snapshotStream(sessionId), 'any', [
        {
          id: randomUUID(),
          type: snapshot.type,
          data: snapshot.data,
          metadata: { ...snapshot.metadata, ...odd },
        },
      ]);
      const fresh = historyOn(store);
      expect(await new Snapshots(store).find(sessionId)).toBeNull();
      expect(await fresh.load(sessionId)).toEqual(await fresh.replay(sessionId));
    }
  });

  describe('of a state that remembers very many keys', () => {
    const remembering = async (store: MemoryStore, count: number, after?: Snapshot, from = 0) => {
      const { session, position } = after ?? (await historyOn(store).load(sessionId));
      if (!exists(session)) throw new Error('it exists');
      const random = seededRandom(count + from);
      let { keys } = session;
      for (let each = 0; each < count; each += 1) {
        const used = random.bytes(16).toString('base64url');
        keys = remember(keys, used, 'ab'.repeat(32), each, from + each);
      }
      return { session: { ...session, keys }, position };
    };
    const keysIn = (store: MemoryStore) =>
      store.all.filter(({ stream }) => stream === keysStream(sessionId));
    const bytesIn = (store: MemoryStore) =>
      [...snapshotsIn(store), ...keysIn(store)].reduce(
        (sum, { data }) => sum + (data as Buffer).length,
        0,
      );

    it('keeps each segment of them once, so that the next one costs what is new', async () => {
      const store = new MemoryStore();
      await lived(store, 20);
      const snapshots = new Snapshots(store);
      const large = await remembering(store, 30 * SEGMENT_KEYS + 10);
      expect(await snapshots.keep(sessionId, large)).toBe(true);
      expect(await new Snapshots(store).find(sessionId)).toEqual(large);
      const before = bytesIn(store);
      const larger = await remembering(store, SEGMENT_KEYS, large);
      // One that did not write them itself finds that they are there.
      expect(await new Snapshots(store).keep(sessionId, larger)).toBe(true);
      expect(bytesIn(store) - before).toBeLessThan(3 * SEGMENT_KEYS * RECORD_CHARS);
      expect(keysIn(store)).toHaveLength(31);
      expect(await new Snapshots(store).find(sessionId)).toEqual(larger);
    });

    it('is equal after the oldest are forgotten', async () => {
      const store = new MemoryStore();
      await lived(store, 20);
      const snapshots = new Snapshots(store);
      const first = await remembering(store, 8 * SEGMENT_KEYS);
      await snapshots.keep(sessionId, first);
      const nextDay = REMEMBERED_MS + 100 * SEGMENT_KEYS;
      const later = await remembering(store, 2 * SEGMENT_KEYS, first, nextDay);
      expect(later.session.keys.forgotten).toBeGreaterThan(0);
      await snapshots.keep(sessionId, later);
      expect(await new Snapshots(store).find(sessionId)).toEqual(later);
    });

    it('kept by two at once holds each segment once', async () => {
      const store = new MemoryStore();
      await lived(store, 20);
      const small = await remembering(store, SEGMENT_KEYS + 1);
      await new Snapshots(store).keep(sessionId, small);
      const large = await remembering(store, 5 * SEGMENT_KEYS, small);
      await Promise.all([1, 2, 3].map(() => new Snapshots(store).keep(sessionId, large)));
      expect(keysIn(store).map(({ metadata }) => metadata.number)).toEqual([0, 1, 2, 3, 4, 5]);
      expect(await new Snapshots(store).find(sessionId)).toEqual(large);
    });

    it('is ignored when a segment is missing, and is whole again the next time', async () => {
      const store = new MemoryStore();
      await lived(store, 20);
      const large = await remembering(store, 3 * SEGMENT_KEYS + 1);
      await new Snapshots(store).keep(sessionId, large);
      for (const { position } of keysIn(store))
        store.all.splice(
          store.all.findIndex((event) => event.position === position),
          1,
        );
      expect(await new Snapshots(store).find(sessionId)).toBeNull();
      await new Snapshots(store).keep(sessionId, large);
      expect(await new Snapshots(store).find(sessionId)).toEqual(large);
    });
  });

  it('that cannot be kept costs nothing but a longer read', async () => {
    const store = new MemoryStore();
    store.beforeAppend = (stream) => {
      if (stream.startsWith('snapshot-')) throw new StoreUnavailable('test');
    };
    await lived(store, SNAPSHOT_EVERY + 5);
    const fresh = historyOn(store);
    expect((await fresh.load(sessionId)).session.revision).toBeGreaterThan(SNAPSHOT_EVERY);
  });
});

describe('the index of open sessions', () => {
  const follow = async (store: MemoryStore) => {
    const changes: string[] = [];
    const open = new OpenSessions(store, quiet, (id) => changes.push(id));
    const stopping = new AbortController();
    let caughtUp = false;
    const done = open.follow(stopping.signal, () => {
      caughtUp = true;
    });
    await until(() => caughtUp);
    const stop = async () => {
      stopping.abort();
      await done;
    };
    return { open, changes, stop };
  };

  it('is kept with its position, so that a start reads only what came later', async () => {
    const store = new MemoryStore();
    await lived(store, 10);
    const first = await follow(store);
    expect(first.open.list()).toEqual([sessionId]);
    await first.open.keep();
    await first.stop();
    const subscribed: unknown[] = [];
    const spying = Object.assign(Object.create(store) as MemoryStore, {
      subscribe: (source: never, signal: AbortSignal) => {
        subscribed.push(source);
        return store.subscribe(source, signal);
      },
    });
    const second = await follow(spying);
    const position = store.all.findLast(({ stream }) => stream.startsWith('session-'))?.position;
    expect(subscribed).toEqual([{ prefixes: ['session-'], afterPosition: position }]);
    expect(second.open.list()).toEqual([sessionId]);
    await second.stop();
  });

  it('forgets what is settled until something happens to it again', async () => {
    const store = new MemoryStore();
    await lived(store, 10);
    const { open, changes, stop } = await follow(store);
    open.settle(sessionId);
    expect(open.list()).toEqual([]);
    await store.append(`session-${sessionId}`, 'any', [
      { id: randomUUID(), type: 'ActivityObserved', data: { at: 1 }, metadata: {} },
    ]);
    await until(() => changes.length > 0);
    expect(open.list()).toEqual([sessionId]);
    await stop();
  });
});
