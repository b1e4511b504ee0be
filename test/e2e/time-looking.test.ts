import { join } from 'node:path';
import { until } from '@vmux/testing';
import { cli } from '../../apps/cli/test/cli';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { lookEverywhere } from '../support/looks';
import { firstProcessOf } from '../support/sandboxes';

const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };

describeOnStack()('a session that is only looked at', (stack) => {
  const suspended = async (session: ClientSession) => {
    await session.ask('suspend');
    await session.becomes('suspended');
  };
  const lost = async (session: ClientSession) => {
    process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), session.id), 'SIGKILL');
    await session.becomes('lost');
  };

  for (const [rest, goes] of [
    ['suspended', suspended],
    ['lost', lost],
  ] as const)
    it(`stays ${rest}, whatever the API or the command line is asked to show of it`, async () => {
      const session = await stack.create();
      const exec = await session.start('echo before');
      await session.ended(exec);
      const checkpoint = await session.checkpoint();
      await until(async () => {
        const { checkpoints } = await session.info();
        return checkpoints.every(({ portable }: { portable: boolean }) => portable);
      }, PATIENCE);
      await goes(session);
      const { revision } = await session.info();
      const looks = await lookEverywhere(stack.api, {
        ...{ sessionId: session.id, execId: exec, checkpointId: checkpoint, port: '8000' },
        path: '/workspace',
      });
      const about = looks.filter(({ path }) => path.includes(session.id));
      expect(about.length).toBeGreaterThanOrEqual(12);
      expect(about.filter(({ status }) => status === 'followed').length).toBeGreaterThan(0);
      expect(looks.filter(({ status }) => status !== 'followed' && status >= 500)).toEqual([]);
      const lines = [
        ...[
          ['ps', '-a'],
          ['inspect', session.id],
          ['inspect', '--tree', session.id],
        ],
        ...[
          ['history', session.id],
          ['logs', session.id],
          ['checkpoints', session.id],
        ],
        ...[['ports', session.id], ['wait', session.id], ['status']],
      ];
      for (const args of lines)
        expect([args, await cli(args, stack.env)]).toEqual([
          args,
          expect.objectContaining({ code: 0 }),
        ]);
      expect(await session.info()).toMatchObject({ status: rest, revision, operation: null });
      expect(await session.run('echo awake')).toBe('awake\n');
      await session.stop();
    }, 120_000);
});
