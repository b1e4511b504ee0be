import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { noDockerEngineBecause, skipUnless, until } from '@vmux/testing';
import { cli } from '../../apps/cli/test/cli';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { firstProcessOf } from '../support/sandboxes';

const noDocker = noDockerEngineBecause();
const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };

describeOnStack({ docker: true })('the time of a session', (stack) => {
  const sandboxes = () => join(stack.dataDir, 'runner/ns/s');
  const archived = (session: ClientSession, checkpointId: string) =>
    until(async () => {
      const { checkpoints } = await session.info();
      return checkpoints.find(
        (each: { id: string; portable: boolean }) => each.id === checkpointId && each.portable,
      );
    }, PATIENCE);
  const lose = async (session: ClientSession) => {
    process.kill(firstProcessOf(sandboxes(), session.id), 'SIGKILL');
    await until(async () => (await session.info()).status === 'lost', PATIENCE);
  };

  it('goes back to a checkpoint, with its logs, its history and its services', async () => {
    const session = await stack.create();
    await session.run('echo one > file; mkdir gone; echo kept > gone/x');
    const service = await session.start('while :; do sleep 0.1; done', {
      service: { name: 'ticker' },
    });
    await until(async () => (await session.exec(service)).status === 'running', PATIENCE);
    const before = await session.checkpoint('before');
    await session.run('echo two > file; rm -r gone; echo more > more');
    expect(await session.ask('rollback', { checkpointId: before })).toMatchObject({ status: 202 });
    await until(async () => (await session.types()).includes('RolledBack'), PATIENCE);
    expect(await session.run('cat file gone/x; ls')).toBe('one\nkept\nfile\ngone\n');
    expect(await session.exec(service)).toMatchObject({
      exit: { kind: 'unknown', reason: 'rolled_back' },
    });
    const { json } = await stack.api.get(`${session.path}/execs?limit=50`);
    const again = json.execs.find(({ follows }: { follows: string }) => follows === service);
    expect(again).toMatchObject({ purpose: 'service' });
    await session.stop();
  }, 120_000);

  it('forks into many at once, which share nothing that they change, and shows the tree', async () => {
    const session = await stack.create({ name: 'parent' });
    await session.run('echo origin > file');
    const forked = await cli(['fork', session.id, '--count', '3', '--json'], stack.env);
    expect(forked).toMatchObject({ code: 0, stderr: '' });
    const { forks } = JSON.parse(forked.stdout.toString()) as { forks: string[] };
    expect(forks).toHaveLength(3);
    const children = forks.map((id) => stack.session(id));
    await Promise.all(children.map((child) => child.run(`echo ${child.id} >> file`)));
    await session.run('echo parent >> file');
    for (const child of children) expect(await child.run('cat file')).toBe(`origin\n${child.id}\n`);
    expect(await session.run('cat file')).toBe('origin\nparent\n');

    const [first] = children;
    if (!first) throw new Error('no child');
    const inner = await first.ask('fork', { name: 'grand' });
    expect(inner.status).toBe(202);
    await until(async () => (await first.info()).forks.length === 1, PATIENCE);
    const { json: tree } = await stack.api.get(`${first.path}/tree`);
    expect(tree).toMatchObject({ id: session.id, checkpointId: null });
    expect(tree.forks.map(({ id }: { id: string }) => id).sort()).toEqual([...forks].sort());
    const node = tree.forks.find(({ id }: { id: string }) => id === first.id);
    expect(node.forks).toMatchObject([{ name: 'grand', checkpointId: expect.any(String) }]);
    const drawn = (await cli(['inspect', '--tree', first.id], stack.env)).stdout.toString();
    expect(drawn.split('\n')[0]).toContain(session.id);
    expect(drawn).toContain(`─ ${first.id} *`);
    expect(drawn).toMatch(/[│ ] {2}└─ grand-/);
    const told = (await cli(['history', session.id], stack.env)).stdout.toString();
    for (const id of forks) expect(told).toContain(id);
  }, 180_000);

  it('forks from any point of the history that a checkpoint stands before', async () => {
    const session = await stack.create();
    await session.run('echo 1 > n');
    await session.checkpoint();
    await session.run('echo 2 > n');
    const { revision } = await session.info();
    await session.run('echo 3 > n');
    await session.checkpoint();
    const asked = await session.ask('fork', { at: revision, name: 'past' });
    expect(asked.status).toBe(202);
    const [child] = await until(async () => {
      const { forks } = await session.info();
      return forks.length > 0 && (forks as string[]);
    }, PATIENCE);
    expect(await stack.session(child ?? '').run('cat n')).toBe('1\n');
    expect(await session.ask('fork', { at: 1 })).toMatchObject({
      status: 404,
      json: { code: 'checkpoint_not_found' },
    });
  }, 120_000);

  it('shows a loss at once, comes back with the next command, and says what nobody can tell', async () => {
    const session = await stack.create();
    await session.run('echo kept > file');
    await session.checkpoint();
    const running = await session.start('sleep 1000');
    await until(async () => (await session.exec(running)).status === 'running', PATIENCE);
    await lose(session);
    expect(await session.exec(running)).toMatchObject({
      exit: { kind: 'unknown', reason: 'sandbox_lost' },
    });
    expect(await session.run('cat file')).toBe('kept\n');
  }, 120_000);

  it('replays what ran since the checkpoint, only when asked, and stops where it differs', async () => {
    const session = await stack.create();
    await session.run('echo 0 > n');
    await session.checkpoint();
    await session.run('echo $(($(cat n) + 1)) > n');
    await session.run('echo $(($(cat n) + 1)) > n');
    await lose(session);
    const whole = await cli(['rehydrate', session.id, '--replay', '--json'], stack.env);
    expect(JSON.parse(whole.stdout.toString())).toMatchObject({ replayed: 2, stopped: null });
    expect(await session.run('cat n')).toBe('2\n');

    // What no command made is not there again.
    await session.checkpoint();
    const flag = `${session.path}/files?path=${encodeURIComponent('/tmp/flag')}`;
    await stack.api.call('PUT', flag, { body: Buffer.from('x') });
    await session.run('echo first >> ran; test -e /tmp/flag');
    await session.run('echo second >> ran');
    await lose(session);
    const cut = await cli(['rehydrate', session.id, '--replay', '--json'], stack.env);
    expect(cut).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('did not end as it did'),
    });
    expect(JSON.parse(cut.stdout.toString())).toMatchObject({
      replayed: 2,
      stopped: { expected: { code: 0 }, outcome: { code: 1 } },
    });
    expect(await session.run('cat ran')).toBe('first\n');
    await session.stop();
  }, 180_000);

  it('is in its provider’s form at once and portable soon after, and both are recorded', async () => {
    const session = await stack.create();
    await session.run('echo x > file');
    const first = await session.checkpoint('named');
    await archived(session, first);
    const second = await session.checkpoint();
    await archived(session, second);
    const { checkpoints } = await session.info();
    expect(checkpoints).toMatchObject([
      { id: first, name: 'named', portable: true },
      { id: second, portable: true },
    ]);
    const types = await session.types();
    const native = checkpoints.filter((each: { native: string | null }) => each.native === 'ns');
    expect(types.filter((type) => type === 'CheckpointArchived')).toHaveLength(native.length);
    const listed = await cli(['checkpoints', session.id], stack.env);
    expect(listed.stdout.toString()).toContain('named');
    await session.stop();
    await stack.api.call('DELETE', session.path);
    await until(
      () =>
        !readdirSync(join(stack.dataDir, 'runner/ns/store/c')).some((n) =>
          n.startsWith(session.id),
        ),
      PATIENCE,
    );
  }, 120_000);

  skipUnless(!noDocker, noDocker ?? '')(
    'moves between providers, with its files, and goes on where it is when that fails',
    async () => {
      const session = await stack.create({ name: 'mover' });
      await session.run(
        'mkdir -p d && echo moved > d/file && ln -s d/file link && chmod 600 d/file',
      );
      const exec = await session.start('i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done');
      await until(async () => (await session.output(exec)).length > 20, PATIENCE);
      const nowhere = await session.ask('move', { provider: 'nowhere' });
      expect(nowhere).toMatchObject({ status: 503, json: { code: 'no_placement' } });
      for (const [to, from] of [
        ['docker', 'ns'],
        ['ns', 'docker'],
      ]) {
        const moved = await cli(
          ['move', session.id, '--to', String(to), '--allow-base-change'],
          stack.env,
        );
        expect(moved).toMatchObject({ code: 0, stderr: '' });
        expect(await session.info()).toMatchObject({ provider: to, status: 'running' });
        expect(await session.run('cat link; stat -c %a d/file')).toBe('moved\n600\n');
        expect(from).not.toBe(to);
      }
      expect(await session.exec(exec)).toMatchObject({
        exit: { kind: 'unknown', reason: 'moved' },
      });
      const lines = (await session.output(exec)).trimEnd().split('\n');
      expect(lines).toEqual(lines.map((_, n) => String(n + 1)));
      await session.stop();
    },
    240_000,
  );
});
