import { fact } from '@vmux/events';
import { TimeController } from '../src/time/time.controller';

const SESSION = 'again-0a1b';
const item = { execId: 'e000000000001', spec: {}, outcome: { kind: 'exited', code: 0 } } as never;

describe('A rehydration that is asked for again', () => {
  it('is answered with what it came to the first time, though more has run since', async () => {
    const recorded = {
      event: fact('ReplayRequested', { at: 1, items: [item] }),
      revision: 7,
      metadata: { principal: 'key:k', correlationId: 'r', version: 1 },
    };
    const accepted = { sessionId: SESSION, firstRevision: 7, revision: 7, repeated: true };
    const answer = { accepted: { ...accepted, position: '9' }, events: [{ recorded }] };
    const controller = new TimeController(
      { session: async () => ({ id: SESSION }), ask: async () => answer } as never,
      { since: async () => [item, item] } as never,
      {} as never,
      { wait: async () => ({}) } as never,
    );
    const caller = { keyId: 'k', owner: 'ann', scopes: [], liveSessions: null };
    const asking = { caller, operation: 'o', clientKey: 'c', requestId: 'r', traceparent: null };
    const reply = { header: () => reply } as never;
    const said = await controller.rehydrate(asking, SESSION, { replay: true }, {}, reply);
    expect(said).toMatchObject({ id: SESSION, replayed: 1 });
  });
});
