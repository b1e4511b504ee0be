import { releaseAll } from '@vmux/testing';
import { SessionReader } from '../src/application/session-reader';
import { CountedStore } from './counted-store';
import { LogBuilder } from './log-builder';

const never = new AbortController().signal;
let store: CountedStore;

beforeAll(async () => {
  store = await CountedStore.start();
});
afterAll(releaseAll);
beforeEach(() => store.countAgain());

const reader = () =>
  new SessionReader(store, (fault) => {
    throw fault;
  });

describe('a view of a session', () => {
  it('is caught up from where it was: reading it again costs what happened since', async () => {
    const id = 'view-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    for (let at = 0; at < 300; at += 1) await log.issued(`e${String(at).padStart(12, '0')}`);
    const sessions = reader();
    store.countAgain();
    expect((await sessions.read(id))?.execs.size).toBe(300);
    expect(store.events).toBe(301);
    await log.issued('eaaaaaaaaaaaa');
    store.countAgain();
    expect((await sessions.read(id))?.execs.size).toBe(301);
    expect(store.events).toBe(1);
  });

  it('skips events that this version does not know', async () => {
    const id = 'newer-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    const metadata = { principal: 'system', correlationId: 'x', version: 1 };
    await store.append(`session-${id}`, 0, [
      {
        id: '00000000-0000-4000-8000-000000000001',
        type: 'SessionBlessed',
        data: { at: 1 },
        metadata,
      },
    ]);
    const sessions = reader();
    expect(await sessions.read(id)).toMatchObject({ revision: 1, status: 'starting' });
  });

  it('is waited for again without a word to the store', async () => {
    const id = 'waited-0001';
    const log = new LogBuilder(store, id);
    await log.created();
    const sessions = reader();
    const lasting = (count: number) =>
      sessions.waitForLasting(id, ({ execs }) => (execs.size >= count ? true : undefined), never);
    const first = lasting(1);
    await log.issued('eaaaaaaaaaaaa');
    expect(await first).toBe(true);
    store.countAgain();
    const second = lasting(2);
    await log.issued('ebbbbbbbbbbbb');
    expect(await second).toBe(true);
    expect(store).toMatchObject({ events: 0, subscriptions: 0 });
  });

  it('forgets the ones that were not needed for longest, and reads them again', async () => {
    const many = new SessionReader(store, () => undefined, null, 3);
    for (let at = 0; at < 8; at += 1) {
      const id = `many-000${at}`;
      await new LogBuilder(store, id).created();
      expect(await many.read(id)).toMatchObject({ id });
    }
    store.countAgain();
    expect(await many.read('many-0000')).toMatchObject({ status: 'starting' });
    expect(store.events).toBe(1);
  });
});
