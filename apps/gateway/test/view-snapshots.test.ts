import { connectEventStore, type EventStore } from '@vmux/event-store';
import { fact, NO_OUTPUT, type SessionEvent, viewStream } from '@vmux/events';
import { releaseAll, releaseLater, startEventStore, until } from '@vmux/testing';
import { SessionReader } from '../src/application/session-reader';
import { ViewSnapshots } from '../src/application/view-snapshots';
import { EXEC_SPEC, LogBuilder } from './log-builder';

const EXECS = 1200;

let store: EventStore;
let events = 0;

beforeAll(async () => {
  const server = await startEventStore({ insecure: true });
  const inner = connectEventStore({ url: server.url });
  releaseLater(() => inner.close());
  store = {
    append: (...args) => inner.append(...args),
    subscribe: (...args) => inner.subscribe(...args),
    close: () => inner.close(),
    async *read(...args) {
      for await (const event of inner.read(...args)) {
        events += 1;
        yield event;
      }
    },
  };
});
afterAll(releaseAll);

const reader = (faults: unknown[] = []) =>
  new SessionReader(store, (fault) => faults.push(fault), new ViewSnapshots(store));
const replayed = (id: string) => new SessionReader(store, () => undefined).read(id);

const execId = (at: number): string => `e${at.toString(16).padStart(12, '0')}`;

async function longHistory(id: string): Promise<LogBuilder> {
  const session = new LogBuilder(store, id);
  await session.created();
  const exit = { at: 3, epoch: 1, sizes: NO_OUTPUT, usage: null };
  const outcome = { kind: 'exited', code: 0 } as const;
  for (let at = 0; at < EXECS; at += 100) {
    const ids = Array.from({ length: 100 }, (_, each) => execId(at + each));
    const facts = ids.flatMap((each): SessionEvent[] => [
      fact('ExecIssued', { at: 2, execId: each, epoch: 1, spec: EXEC_SPEC, follows: null }),
      fact('ExecExited', { ...exit, execId: each, outcome }),
    ]);
    await session.session(...facts);
  }
  return session;
}

const keptOf = async (id: string): Promise<number> => {
  let kept = 0;
  for await (const event of store.read(viewStream(id), { direction: 'backwards', limit: 1 }))
    kept = Number(event.metadata.revision);
  return kept;
};
const hasKept = (id: string, revision: number) =>
  until(async () => (await keptOf(id).catch(() => -1)) === revision, { timeoutMs: 20_000 });

describe('a long history', () => {
  it('is folded from its first event once, and equals its replay ever after', async () => {
    const id = 'long-0001';
    const session = await longHistory(id);
    await reader().read(id);
    await hasKept(id, 2 * EXECS);
    await session.issued('efffffffffff');
    events = 0;
    const view = await reader().read(id);
    // The beginning shows that it is long; then come the snapshot, the event it ends with and what is new.
    expect(events).toBeLessThan(600);
    expect(view).toEqual(await replayed(id));
    expect(view?.execs.size).toBe(EXECS + 1);
    expect(view?.execs.get('efffffffffff')?.status).toBe('dispatched');
  });

  it('is folded again when what was kept is of another history, or cannot be read', async () => {
    const id = 'long-0002';
    await longHistory(id);
    const snapshots = new ViewSnapshots(store);
    const other = await replayed('long-0001');
    if (!other) throw new Error('no view');
    await snapshots.keep({ view: { ...other, id, owner: 'somebody' }, eventId: 'another event' });
    expect(await reader().read(id)).toEqual(await replayed(id));

    await hasKept(id, 2 * EXECS);
    const faults: unknown[] = [];
    for await (const last of store.read(viewStream(id), { direction: 'backwards', limit: 1 }))
      await store.append(viewStream(id), 'any', [
        { ...last, id: '00000000-0000-4000-8000-00000000000b', data: Buffer.from('torn') },
      ]);
    expect(await reader(faults).read(id)).toEqual(await replayed(id));
    expect(faults).toHaveLength(1);
  });

  it('leaves nothing behind when its session is deleted while its view is being kept', async () => {
    const id = 'long-0003';
    const session = await longHistory(id);
    const view = await replayed(id);
    if (!view) throw new Error('no view');
    await session.session(
      fact('SessionDeleted', { at: 5, sessionId: id, owner: 'me', createdBy: null }),
    );
    await new ViewSnapshots(store).keep({ view, eventId: 'x' });
    await expect(keptOf(id)).resolves.toBe(0);
  });
});
