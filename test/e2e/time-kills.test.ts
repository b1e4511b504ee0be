import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { seededRandom, until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { firstProcessOf } from '../support/sandboxes';

const PATIENCE = { timeoutMs: 90_000, everyMs: 50 };
const SEED = Number(process.env.VMUX_SEED || 20_261_118);
/** By default each verb meets two of the processes; with VMUX_ALL_KILLS every one of them. */
const ALL = Boolean(process.env.VMUX_ALL_KILLS);
const PROCESSES = ['runner-local', 'session-service', 'event-store', 'nats-server', 'gateway'];

/** A process that is killed in the middle of a verb: afterwards it is done or cleanly not done. */
describeOnStack()('a verb that is interrupted', (stack) => {
  const random = seededRandom(SEED);
  let turn = 0;
  const victims = (): readonly string[] => {
    if (ALL) return PROCESSES;
    const at = turn++ * 2;
    return [0, 1].flatMap((n) => PROCESSES[(at + n) % PROCESSES.length] ?? []);
  };

  /** Asks as a client should: again, under the same key, until there is an answer. */
  const patiently = (session: ClientSession, verb: string, body: object = {}) => {
    const key = randomUUID();
    return until(async () => {
      const headers = { 'idempotency-key': key };
      const answer = await stack.api.post(`${session.path}/${verb}`, body, headers);
      if (answer.status >= 500) throw new Error(`${answer.status} ${answer.text}`);
      return answer;
    }, PATIENCE);
  };
  const interrupted = async (session: ClientSession, victim: string, verb: string, body = {}) => {
    const asked = patiently(session, verb, body);
    await new Promise((done) => setTimeout(done, random.integer(60)));
    process.kill(stack.pidOf(victim), 'SIGKILL');
    return asked;
  };
  /** Nothing under way, read patiently. */
  const settled = (session: ClientSession) =>
    until(async () => {
      const info = await session.info();
      const isBusy = info.checkpoints?.some(
        (each: { status: string }) => each.status === 'requested',
      );
      if (info.revision > 0 && info.operation === null && !isBusy && info.status !== 'starting')
        return info;
      throw new Error(`${info.status} ${info.operation} ${info.message}`);
    }, PATIENCE);
  const runs = async (session: ClientSession, command: string) =>
    (await until(async () => ({ text: await session.run(command) }), PATIENCE)).text;
  const lastOf = async (session: ClientSession, ...types: string[]) =>
    until(
      async () => (await session.types()).filter((type) => types.includes(type)).at(-1),
      PATIENCE,
    );

  it('keeps a checkpoint whole or not at all', async () => {
    const session = await stack.create();
    for (const victim of victims()) {
      await runs(session, 'head -c 5000000 /dev/urandom > data; sha256sum data > sum');
      const { json } = await interrupted(session, victim, 'checkpoints');
      const { checkpoints } = await settled(session);
      const taken = checkpoints.find(({ id }: { id: string }) => id === json.checkpointId);
      expect([victim, taken.status]).toEqual([victim, expect.stringMatching(/^(taken|failed)$/)]);
      if (taken.status !== 'taken') continue;
      await runs(session, 'rm data');
      await patiently(session, 'rollback?wait=60s', { checkpointId: taken.id });
      await settled(session);
      expect([victim, await runs(session, 'sha256sum -c sum')]).toEqual([victim, 'data: OK\n']);
    }
    await session.stop();
  }, 300_000);

  it('suspends and resumes or leaves it as it was, and nothing that runs is lost', async () => {
    const session = await stack.create();
    const counter = await session.start(
      'i=0; while [ ! -e /tmp/enough ]; do i=$((i+1)); echo $i; sleep 0.02; done',
    );
    for (const verb of ['suspend', 'resume', 'suspend']) {
      for (const victim of victims()) {
        await interrupted(session, victim, verb);
        const { status } = await settled(session);
        expect([victim, verb, status]).toEqual([
          victim,
          verb,
          expect.stringMatching(/^(running|suspended)$/),
        ]);
        const outcome = verb === 'suspend' ? 'suspended' : 'running';
        const failed = await lastOf(
          session,
          'SandboxSuspended',
          'SandboxResumed',
          'SuspendFailed',
          'ResumeFailed',
          'SandboxStarted',
        );
        if (!failed?.endsWith('Failed'))
          expect([victim, verb, status]).toEqual([victim, verb, outcome]);
      }
    }
    await runs(session, 'touch /tmp/enough');
    const { exit } = await until(() => session.ended(counter), PATIENCE);
    expect(exit).toEqual({ kind: 'exited', code: 0 });
    const lines = (await session.output(counter)).trimEnd().split('\n');
    expect(lines).toEqual(lines.map((_, n) => String(n + 1)));
    await session.stop();
  }, 300_000);

  it('rolls back or stays, and says which', async () => {
    const session = await stack.create();
    await runs(session, 'echo kept > state');
    const checkpointId = await session.checkpoint();
    for (const victim of victims()) {
      await runs(session, 'echo changed > state');
      await interrupted(session, victim, 'rollback', { checkpointId });
      await settled(session);
      const last = await lastOf(session, 'RolledBack', 'RestoreFailed');
      const expected = last === 'RolledBack' ? 'kept\n' : 'changed\n';
      expect([victim, await runs(session, 'cat state')]).toEqual([victim, expected]);
    }
    await session.stop();
  }, 300_000);

  it('makes every fork once', async () => {
    const session = await stack.create({ name: 'forked' });
    await runs(session, 'echo parent > state');
    let expected = 0;
    for (const victim of victims()) {
      const { json } = await interrupted(session, victim, 'fork', { count: 2 });
      expected += 2;
      const info = await until(async () => {
        const seen = await session.info();
        return seen.forks.length >= expected && seen;
      }, PATIENCE);
      expect([victim, info.forks.length]).toEqual([victim, expected]);
      expect(json.forkId).toBeTruthy();
      for (const id of info.forks.slice(-2)) {
        const child = stack.session(id);
        expect([victim, await runs(child, 'cat state')]).toEqual([victim, 'parent\n']);
        await child.stop();
      }
    }
    await session.stop();
  }, 300_000);

  it('rehydrates once what was lost', async () => {
    const session = await stack.create();
    await runs(session, 'echo kept > state');
    await session.checkpoint();
    for (const victim of victims()) {
      await until(
        () =>
          process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), session.id), 'SIGKILL'),
        PATIENCE,
      );
      await until(async () => (await session.info()).status === 'lost', PATIENCE);
      await interrupted(session, victim, 'rehydrate');
      await settled(session);
      expect([victim, await runs(session, 'cat state')]).toEqual([victim, 'kept\n']);
    }
    await session.stop();
  }, 300_000);
});
