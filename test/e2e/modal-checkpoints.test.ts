import { describeUnless, releaseAll, until } from '@vmux/testing';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';
import { type EmulatedImage, ModalControl } from '../support/modal-control';

const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };
const QUIET = {
  failSnapshots: 0,
  loseSnapshotAnswers: 0,
  snapshotDelayMs: 0,
  strangeSnapshots: false,
};
jest.setTimeout(180_000);

/** With their numbers of links and times. */
const TREE = "find /srv /workspace -printf '%p %M %U %G %s %n %T@ %l\\n' | sort";

interface Taken {
  readonly checkpointId: string;
  readonly artifact: string;
  readonly manifestDigest: string;
  readonly base: { readonly image: string | null; readonly digest: string };
  readonly native: { readonly ref: string; readonly pool: string } | null;
}

describeUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux')(
  'checkpoints of a session on Modal (emulated)',
  () => {
    let stack: EmbeddedStack;
    let modal: ModalControl;
    beforeAll(async () => {
      stack = await EmbeddedStack.start(null, { VMUX_WITH: 'modal-local' });
      modal = new ModalControl(stack.dataDir);
    });
    afterEach(() => modal.faults(QUIET));
    afterAll(async () => {
      await stack?.stop();
      await releaseAll();
    });

    const created = () => stack.create({ provider: 'modal' });
    const takenIn = async (session: ClientSession): Promise<readonly Taken[]> =>
      (await session.events())
        .filter(({ type }) => type === 'CheckpointTaken')
        .map(({ data }) => data.checkpoint as Taken);
    const take = async (session: ClientSession): Promise<Taken> => {
      const checkpointId = await session.checkpoint();
      const taken = (await takenIn(session)).find((each) => each.checkpointId === checkpointId);
      if (!taken) throw new Error('the history does not say so');
      return taken;
    };
    const imageOf = async ({ native }: Taken): Promise<EmulatedImage> => {
      const imageId = native?.ref.split('@')[0];
      const image = (await modal.images()).find((each) => each.imageId === imageId);
      if (!image) throw new Error(`Modal has no ${imageId}`);
      return image;
    };
    const rollBack = async (session: ClientSession, { checkpointId }: Taken) => {
      expect(await session.ask('rollback?wait=60s', { checkpointId })).toMatchObject({
        status: 200,
      });
      expect(await session.types()).not.toContain('RestoreFailed');
      await session.becomes('running');
    };
    const waits = (check: () => Promise<boolean>) => until(check, PATIENCE);

    it('are a snapshot and portable, and begin rollbacks and forks with the snapshot', async () => {
      const session = await created();
      await session.run(
        'echo one > file; mkdir -p /srv/d; head -c 2000000 /dev/urandom > /srv/d/f',
      );
      const sums = await session.run('sha256sum file /srv/d/f');
      const first = await take(session);
      expect(first).toMatchObject({
        artifact: expect.any(String),
        native: { provider: 'modal', pool: expect.stringMatching(/^ap-/) },
      });
      expect((await session.info()).checkpoints).toMatchObject([
        { native: 'modal', portable: true },
      ]);
      const trees = new Set([await session.run(TREE)]);
      const before = await session.start('echo said before; sleep 1000');
      await waits(async () => (await session.output(before)) === 'said before\n');
      await session.run('echo two > file; rm /srv/d/f; echo new > /srv/new');
      for (const times of [1, 2]) {
        await rollBack(session, first);
        trees.add(await session.run(TREE));
        expect(await session.run('sha256sum file /srv/d/f; ls /srv')).toBe(`${sums}d\n`);
        expect(await imageOf(first)).toMatchObject({ creates: times });
      }
      expect(trees.size).toBe(1);
      // The supervisor's own record in the image is another sandbox's: what was said stays what it was.
      expect(await session.output(before)).toBe('said before\n');
      expect(await session.exec(before)).toMatchObject({ exit: { kind: 'unknown' } });
      expect(await session.run('ls -A /.vmux/spool | wc -l')).toBe('1\n');

      // What goes on from it names the same base, and has everything in both forms again.
      await session.run('mv /srv/d /srv/e; touch /srv/e/g');
      const second = await take(session);
      expect(second.base).toEqual(first.base);
      await session.ask('fork', { checkpointId: second.checkpointId, count: 2 });
      const forks: ClientSession[] = await until(async () => {
        const { forks: made } = await session.info();
        return made.length === 2 && made.map((id: string) => stack.session(id));
      }, PATIENCE);
      for (const fork of forks) {
        await fork.becomes('running');
        expect(await fork.run('cat file; ls /srv/e; sha256sum < /srv/e/f | cut -c1-64')).toBe(
          `one\nf\ng\n${sums.split('\n')[1]?.slice(0, 64)}\n`,
        );
      }
      expect(await imageOf(second)).toMatchObject({ creates: 2 });

      // With the session its images go; what was made of one goes on.
      await session.stop();
      await stack.api.call('DELETE', session.path);
      await waits(async () => (await imageOf(first)).isGone && (await imageOf(second)).isGone);
      for (const fork of forks) expect(await fork.run('cat file')).toBe('one\n');
      const child = forks[0];
      if (child) await rollBack(child, second);
      expect(await child?.run('ls /srv/e')).toBe('f\ng\n');
      for (const fork of forks) await fork.stop();
    });

    it('are restored from the portable form once Modal has the snapshot no more', async () => {
      const session = await created();
      await session.run('echo kept > file');
      const taken = await take(session);
      await modal.remove(await imageOf(taken));
      await session.run('echo later > file');
      await rollBack(session, taken);
      expect(await session.run('cat file')).toBe('kept\n');
      expect(await imageOf(taken)).toMatchObject({ isGone: true, creates: 0 });
      await session.stop();
    });

    it('are portable alone when Modal takes no snapshot, and the session goes on', async () => {
      const session = await created();
      await session.run('echo kept > file');
      await modal.faults({ failSnapshots: 1 });
      const taken = await take(session);
      expect(taken).toMatchObject({ native: null, artifact: expect.any(String) });
      expect((await session.info()).checkpoints).toMatchObject([{ native: null, portable: true }]);
      await session.run('echo later > file');
      await rollBack(session, taken);
      expect(await session.run('cat file')).toBe('kept\n');
      expect((await take(session)).native).not.toBeNull();
      await session.stop();
    });

    it('are one snapshot though Modal’s answer was lost', async () => {
      const session = await created();
      await session.run('echo kept > file');
      const known = (await modal.images()).length;
      await modal.faults({ loseSnapshotAnswers: 1 });
      const taken = await take(session);
      expect(taken.native).not.toBeNull();
      expect(await modal.images()).toHaveLength(known + 1);
      await session.stop();
    });

    it('do without a snapshot that has something else in it', async () => {
      const session = await created();
      await session.run('echo kept > file');
      await modal.faults({ strangeSnapshots: true });
      const taken = await take(session);
      await session.run('echo later > file');
      await rollBack(session, taken);
      expect(await session.run('cat file; ls /srv')).toBe('kept\n');
      expect(await imageOf(taken)).toMatchObject({ creates: 1 });
      await session.stop();
    });

    it('come to one when the runner is killed in the middle, and nothing stays still', async () => {
      const session = await created();
      await session.run('echo kept > file');
      const ticks = await session.start('while :; do echo tick; sleep 0.05; done');
      for (const afterMs of [300, 1_200]) {
        await modal.faults({ snapshotDelayMs: 1_000 });
        const before = (await takenIn(session)).length;
        const { json } = await session.ask('checkpoints', {});
        await new Promise((resolve) => setTimeout(resolve, afterMs));
        process.kill(stack.pidOf('runner-modal'), 'SIGKILL');
        await waits(async () => {
          const { checkpoints } = await session.info();
          const found = checkpoints.find(({ id }: { id: string }) => id === json.checkpointId);
          return found?.status === 'taken' || found?.status === 'failed';
        });
        expect((await takenIn(session)).length - before).toBeLessThanOrEqual(1);
        const said = (await session.output(ticks)).length;
        await waits(async () => (await session.output(ticks)).length > said);
      }
      await modal.faults(QUIET);
      const taken = (await takenIn(session)).at(-1) ?? (await take(session));
      await session.run('echo later > file');
      await rollBack(session, taken);
      expect(await session.run('cat file')).toBe('kept\n');
      await session.stop();
    });

    it('begin the next sandbox of a session that was put away, and one elsewhere with the same files', async () => {
      const session = await stack.create({ provider: 'modal', policy: { idleTimeoutMs: 2_500 } });
      await session.run('echo kept > file; ln file hard; mkdir -m 700 /srv/private');
      await session.becomes('released');
      const stored = (await takenIn(session)).at(-1);
      if (!stored) throw new Error('it was not stored');
      expect(await session.run('cat file')).toBe('kept\n');
      expect(await imageOf(stored)).toMatchObject({ creates: 1 });

      // The history takes no other digest of what was found there than that of what was stored.
      const tree = await session.run(TREE);
      const moved = await session.ask('move?wait=60s', { provider: 'ns', allowBaseChange: true });
      expect(moved.status).toBe(200);
      expect(await session.types()).toContain('Moved');
      expect(await session.run(TREE)).toBe(tree);
      expect(await session.run('cat hard; stat -c %a /srv/private')).toBe('kept\n700\n');
      await session.stop();
    });
  },
);
