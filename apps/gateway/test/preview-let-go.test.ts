import { fact, type SessionEvent } from '@vmux/events';
import { releaseAll } from '@vmux/testing';
import { TunnelRefused } from '@vmux/tunnel';
import { begin, startStage } from './preview-stage';

describe('A preview of a sandbox that its runner has let go of', () => {
  afterEach(releaseAll);
  const APP = 8000;

  /** Looked at while that happens, and before anything of it is known here. */
  async function lookedAt(...meanwhile: readonly SessionEvent[]) {
    const stage = await startStage({
      dialAfter: async () => {
        for (const event of meanwhile) stage.happened(event);
        throw new TunnelRefused('stale_sandbox', 'this runner does not have that sandbox');
      },
    });
    begin(stage);
    return (await stage.client(APP)).get('/');
  }

  it('says that the session has ended, when the history does by now', async () => {
    const stopped = fact('SessionStopped', { at: 5, cause: 'request' } as never);
    expect(await lookedAt(stopped)).toMatchObject({ status: 410 });
  });

  it('says that it is lost, when the history does by now', async () => {
    const evidence = { kind: 'probe', message: 'gone' } as const;
    const lost = fact('SandboxLost', { at: 5, epoch: 1, instance: 'i-1', evidence });
    const page = await lookedAt(lost);
    expect(page).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(page.text).toContain('The session is lost');
  });

  it('may be looked at again, when nothing has changed', async () => {
    const page = await lookedAt();
    expect(page).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(page.text).toContain('cannot be reached at the moment');
  });
});
