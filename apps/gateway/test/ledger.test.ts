import { MAX_REPLAY } from '@vmux/events';
import { Ledger } from '../src/application/ledger';
import type { SessionView } from '../src/application/session-view';

/** A session in which so many commands ran after its checkpoint, and one before it. */
function sessionWith(commands: number): SessionView {
  const outcome = { kind: 'exited', code: 0 };
  const execs = Array.from({ length: commands + 1 }, (_, at) => {
    const exec = { id: `e${at}`, issuedRevision: 10 * at, purpose: 'user', outcome };
    return [exec.id, exec] as const;
  });
  const checkpoints = new Map([['c1', { id: 'c1', status: 'taken', revision: 5 }]]);
  const view = { id: 'web-0a1b', execs: new Map(execs), checkpoints, lastCheckpoint: 'c1' };
  return { ...view, restores: [] } as unknown as SessionView;
}

const specOf = (line: string) => async () =>
  ({ command: { kind: 'shell', line } }) as unknown as Awaited<
    ReturnType<ConstructorParameters<typeof Ledger>[0]['specOf']>
  >;

describe('What is to be run again', () => {
  it('is everything that ran since the checkpoint, in order, also more than a hundred', async () => {
    const { replay } = await new Ledger({ specOf: specOf('true') }).since(sessionWith(250), null);
    expect(replay.map(({ execId }) => execId)).toEqual(
      Array.from({ length: 250 }, (_, at) => `e${at + 1}`),
    );
  });

  it('is one too many where there is more than can be: that is refused, not cut off', async () => {
    const ledger = new Ledger({ specOf: specOf('true') });
    const most = await ledger.since(sessionWith(MAX_REPLAY), null);
    const more = await ledger.since(sessionWith(3 * MAX_REPLAY), null);
    expect([most.replay.length, more.replay.length]).toEqual([MAX_REPLAY, MAX_REPLAY + 1]);
  });

  it('is nothing, with the reason, where the commands are too long for one message', async () => {
    const ledger = new Ledger({ specOf: specOf('x'.repeat(20_000)) });
    expect(await ledger.since(sessionWith(100), null)).toEqual({
      replay: [],
      whyNoReplay: expect.stringContaining('too long to be run again as one'),
    });
  });

  it('is nothing, with the reason, where the history no longer has one of them', async () => {
    const ledger = new Ledger({ specOf: async () => null });
    expect(await ledger.since(sessionWith(1), null)).toEqual({
      replay: [],
      whyNoReplay: expect.stringContaining('e1 is no longer in the history'),
    });
  });
});
