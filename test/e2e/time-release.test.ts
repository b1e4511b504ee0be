import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { lookEverywhere } from '../support/looks';
import { PreviewClient } from '../support/preview-client';
import { TerminalClient } from '../support/terminal-client';

const PATIENCE = { timeoutMs: 90_000, everyMs: 100 };

describeOnStack({ env: { VMUX_WITH: 'modal-local' } })(
  'an idle session whose provider cannot suspend (Modal, emulated)',
  (stack) => {
    const created = () => stack.create({ provider: 'modal', policy: { idleTimeoutMs: 2_500 } });
    const isReleased = (session: ClientSession) =>
      until(async () => {
        const { status, operation, message } = await session.info();
        if (status === 'released' && operation === null) return true;
        throw new Error(`${status}, ${operation}, ${message}`);
      }, PATIENCE);
    const causeOf = async (session: ClientSession, type: string) =>
      (await session.events()).findLast((event) => event.type === type)?.data.cause;

    it('is stored and given back: nothing of it is left, looking brings nothing back, a command does', async () => {
      const session = await created();
      const exec = await session.start('echo kept > file; head -c 300000000 /dev/zero | tail -c 1');
      await session.ended(exec);
      await isReleased(session);
      const types = await session.types();
      expect(types).not.toContain('SuspendRequested');
      const order = [
        'ReleaseRequested',
        'CheckpointRequested',
        'CheckpointTaken',
        'SandboxReleased',
      ];
      expect(types.filter((type) => order.includes(type))).toEqual(order);
      expect(await causeOf(session, 'ReleaseRequested')).toBe('idle');
      expect(readdirSync(join(stack.dataDir, 'modal/workers/s'))).toEqual([]);

      const { revision } = await session.info();
      const known = { sessionId: session.id, execId: exec, port: '8000', path: '/workspace' };
      await lookEverywhere(stack.api, known);
      expect(await session.info()).toMatchObject({ status: 'released', revision });

      expect(await session.run('cat file')).toBe('kept\n');
      expect((await session.info()).sandbox).toMatchObject({ epoch: 2 });
      await session.stop();
    }, 180_000);

    it('is brought back by a terminal, which waits for it', async () => {
      const session = await created();
      await session.run('echo kept > file');
      await isReleased(session);
      const shell = await stack.api.post(`${session.path}/shell`, {});
      expect(shell).toMatchObject({ status: 201 });
      const path = `${session.path}/execs/${shell.json.id}/attach`;
      const terminal = await TerminalClient.open(stack.api.url, path, { key: stack.api.key });
      await terminal.shows(/[$#] $/m);
      terminal.type('cat /workspace/file\n');
      await terminal.shows(/^kept$/m);
      terminal.close();
      await session.stop();
    }, 180_000);

    it('is brought back by a visit to an app of its, which waits until the app is there again', async () => {
      const session = await created();
      await session.run('echo served > index.html');
      const service = await session.start('exec python3 -m http.server --bind 127.0.0.1 8000', {
        service: { name: 'web' },
        keepsAwake: false,
      });
      const { token } = (await stack.api.post(`${session.path}/ports/8000/token`, {})).json;
      const visitor = new PreviewClient(stack.api.url, session.id, 8000, token);
      await until(async () => (await visitor.get('/')).status === 200, PATIENCE);
      await isReleased(session);
      expect(await visitor.get('/')).toMatchObject({ status: 200, text: 'served\n' });
      expect(await causeOf(session, 'RehydrateRequested')).toBe('preview');
      const { json } = await stack.api.get(`${session.path}/execs?limit=20`);
      const [again] = json.execs.filter(({ follows }: { follows: string }) => follows === service);
      expect(again).toMatchObject({ purpose: 'service', epoch: 2, status: 'running' });
      expect((await session.exec(service)).exit).toMatchObject({ kind: 'signalled' });
      await session.stop();
    }, 180_000);
  },
);
