import { EventEmitter } from 'node:events';
import { Settling } from '../src/time/settling';

/** Waits until nobody waits any more. */
const reader = {
  waitFor: (_session: string, _done: unknown, signal: AbortSignal) =>
    new Promise<undefined>((resolve) => {
      if (signal.aborted) resolve(undefined);
      signal.addEventListener('abort', () => resolve(undefined), { once: true });
    }),
};
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
});
