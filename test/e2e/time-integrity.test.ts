import { join } from 'node:path';
import { noDockerEngineBecause, type SeededRandom, seededRandom, until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { firstProcessOf } from '../support/sandboxes';

const noDocker = noDockerEngineBecause();
const ROUNDS = Number(process.env.VMUX_INTEGRITY_ROUNDS || 20);
const SEED = Number(process.env.VMUX_SEED || 20_261_118);
const PATIENCE = { timeoutMs: 90_000, everyMs: 50 };

/** Everything that makes a tree what it is: names, kinds, modes, owners, links, times and bytes. */
const HASH = [
  'cd /workspace/data',
  "{ find . ! -type d -printf '%p %y %m %U %G %s %l %n %T@\\n'; find . -type d -printf '%p %m %U %G %T@\\n'; } | LC_ALL=C sort > /tmp/names",
  'find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum > /tmp/sums',
  'cat /tmp/names /tmp/sums | sha256sum',
].join(' && ');

/** Random changes of every kind that a filesystem knows, as lines of shell. */
function changes(random: SeededRandom, count: number): string {
  const file = () => `f${random.integer(12)}`;
  const kinds: readonly (() => string)[] = [
    () => `head -c ${1 + random.integer(3_000_000)} /dev/urandom > ${file()}`,
    () =>
      `dd if=/dev/urandom of=${file()} bs=${1 + random.integer(5000)} seek=${random.integer(500)} count=${1 + random.integer(20)} conv=notrunc`,
    () => `truncate -s ${random.integer(2_000_000)} ${file()}`,
    () =>
      `truncate -s 50M sparse; printf x | dd of=sparse bs=1 seek=${random.integer(50_000_000)} conv=notrunc`,
    () => `mv -f ${file()} ${file()}`,
    () => `ln -f ${file()} hard${random.integer(4)}`,
    () => `ln -sfn ${file()} soft${random.integer(4)}`,
    () => `rm -f ${file()}`,
    () => `mkdir -p d${random.integer(5)}/e && cp ${file()} d${random.integer(5)}/e/`,
    () => `rm -rf d${random.integer(5)}`,
    () => `chmod ${random.pick(['600', '640', '755', '4711'])} ${file()}`,
    () => `chown ${random.integer(5)}:${random.integer(5)} ${file()}`,
    () => `mkfifo pipe${random.integer(3)}`,
  ];
  const lines = Array.from({ length: count }, () => random.pick(kinds)());
  return `mkdir -p /workspace/data && cd /workspace/data && { ${lines.map((line) => `${line} || true`).join('; ')}; } 2>/dev/null`;
}

const LOGGER = 'i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done';

describeOnStack({ docker: true })('the files of a session', (stack) => {
  it(`are the same through ${ROUNDS} rounds of random changes, checkpoints, rollbacks, forks, rest, losses and moves, while a logger runs`, async () => {
    const random = seededRandom(SEED);
    const session = await stack.create({ name: 'integrity' });
    await session.run('mkdir -p /workspace/data');
    await session.start(LOGGER, { service: { name: 'logger' } });
    const hash = (of: ClientSession = session) => of.run(HASH);
    const change = async () => {
      await session.run(changes(random, 25));
      return hash();
    };

    for (let round = 0; round < ROUNDS; round += 1) {
      const where = `round ${round} of seed ${SEED}`;
      const kept = await change();
      const checkpointId = await session.checkpoint();
      expect([where, await hash()]).toEqual([where, kept]);
      const now = await change();
      expect([where, now]).not.toEqual([where, kept]);
      await deed(round, session, { where, kept, now, checkpointId });
      await session.ask('suspend');
      await session.becomes('suspended');
      const asleep = await hash();
      expect((await session.info()).status).toBe('running');
      expect([where, await hash()]).toEqual([where, asleep]);
    }
    await expectWholeLogs(session);
    await session.stop();
  }, 1_200_000);

  interface Before {
    readonly where: string;
    readonly kept: string;
    readonly now: string;
    readonly checkpointId: string;
  }

  async function deed(round: number, session: ClientSession, before: Before): Promise<void> {
    const { where, kept, now, checkpointId } = before;
    const { provider } = await session.info();
    const deeds = noDocker ? (['rollback', 'fork', 'lose'] as const) : MOVING;
    switch (deeds[round % deeds.length]) {
      case 'rollback':
        await session.ask('rollback?wait=120s', { checkpointId });
        await session.becomes('running');
        expect([where, await session.run(HASH)]).toEqual([where, kept]);
        return;
      case 'fork': {
        const { json } = await session.ask('fork?wait=120s', { checkpointId });
        const child = stack.session(json.forks[0]);
        expect([where, await child.run(HASH)]).toEqual([where, kept]);
        await child.run('rm -rf /workspace/data');
        expect([where, await session.run(HASH)]).toEqual([where, now]);
        await child.stop();
        return;
      }
      case 'move': {
        const to = provider === 'ns' ? 'docker' : 'ns';
        await session.ask('move?wait=180s', { provider: to, allowBaseChange: true });
        expect([where, (await session.becomes('running')).provider]).toEqual([where, to]);
        expect([where, await session.run(HASH)]).toEqual([where, now]);
        return;
      }
      default:
        if (provider !== 'ns') return;
        process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), session.id), 'SIGKILL');
        await until(async () => (await session.info()).status === 'lost', PATIENCE);
        expect([where, await session.run(HASH)]).toEqual([where, kept]);
    }
  }

  /** Every logger counts from 1 without a gap, whatever befell it. */
  async function expectWholeLogs(session: ClientSession): Promise<void> {
    const { json } = await stack.api.get(`${session.path}/execs?limit=500`);
    const loggers = json.execs.filter(({ purpose }: { purpose: string }) => purpose === 'service');
    expect(loggers.length).toBeGreaterThan(1);
    for (const { id } of loggers) {
      const lines = (await session.output(id)).trimEnd().split('\n');
      expect(lines).toEqual(lines.map((_, n) => `line ${n + 1}`));
    }
  }
});

const MOVING = ['rollback', 'lose', 'move', 'fork', 'move', 'fork'] as const;
