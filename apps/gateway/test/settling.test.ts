import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { JsonObject } from '@vmux/event-store';
import { sessionStream } from '@vmux/events';
import { releaseAll } from '@vmux/testing';
import { SessionReader } from '../src/application/session-reader';
import { Settling } from '../src/time/settling';
import { CountedStore } from './counted-store';

afterAll(releaseAll);

/** Waits until nobody waits any more. */
const waitForLasting = (_session: string, _done: unknown, signal: AbortSignal) =>
  new Promise<undefined>((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
const reader = { waitForLasting };
const answer = { accepted: { sessionId: 'web-0a1b', revision: 1 } } as never;

describe('Waiting for what was asked of a session', () => {
  it('ends when whoever asked has left', async () => {
    const raw = Object.assign(new EventEmitter(), { destroyed: false });
    const waiting = new Settling(reader as never).wait({ raw } as never, answer, '300s');
    raw.emit('close');
    expect(await waiting).toEqual({});
  });

  it('does not begin for somebody who has left already', async () => {
    const raw = Object.assign(new EventEmitter(), { destroyed: true });
    expect(await new Settling(reader as never).wait({ raw } as never, answer, '300s')).toEqual({});
  });

  it('asks the store nothing that it will be told, and for a repeat how things stand now', async () => {
    const store = await CountedStore.start();
    const sessionId = 'web-0a1b';
    const views = new SessionReader(store, () => undefined);
    const metadata = { principal: 'system', correlationId: 'x', version: 1 };
    const append = (type: string, data: JsonObject) =>
      store.append(sessionStream(sessionId), 'any', [{ id: randomUUID(), type, data, metadata }]);
    await append('SuspendRequested', { at: 1, epoch: 1, cause: 'request' });
    await views.read(sessionId);
    store.countAgain();
    const reply = () => ({
      raw: Object.assign(new EventEmitter(), { destroyed: false }),
      status: () => undefined,
    });
    const asked = (repeated: boolean) =>
      new Settling(views).wait(
        reply() as never,
        { accepted: { sessionId, revision: 0, repeated } } as never,
        '20s',
      );
    const waiting = asked(false);
    await append('SuspendFailed', { at: 2, epoch: 1, message: 'not now' });
    expect(await waiting).toMatchObject({ session: { operation: null, message: 'not now' } });
    expect(store.reads).toBe(0);
    expect(await asked(true)).toMatchObject({ session: { message: 'not now' } });
    expect(store.reads).toBe(1);
  }, 60_000);
});
