import { releaseAll, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import { type Stack, startRunner, startService, startStack } from '../../../test/support/stack';
import { Client, factsOf, historyOf, outputOf } from './client';

let stack: Stack;
let runner: FakeRunner;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  client = new Client(stack.bus);
});
afterAll(releaseAll);

describe('when the store is short of room', () => {
  it('output and new sessions wait, and exits and stops still go through', async () => {
    const roomy = await startService(stack, 'roomy');
    const { sessionId } = await client.create('room');
    await until(async () => (await historyOf(stack.store, sessionId)).includes('SandboxStarted'));
    runner.acts.StartExec = () => undefined;
    const [writes, silent] = [
      await client.exec(sessionId, 'writes'),
      await client.exec(sessionId, 'silent'),
    ];
    await roomy.stop();
    const full = { VMUX_STORE_DIR: stack.events.dir, VMUX_RESERVE_MIB: String(2 ** 40) };
    const narrow = await startService(stack, 'narrow', full);
    await until(() => narrow.output().includes('short of room'));

    runner.insists = false;
    const sandbox = runner.sandboxOf(sessionId);
    const held = await runner.write(sandbox, writes.execId, 0, Buffer.from('held back'));
    expect(held).toMatchObject({ ok: false, failed: { code: 'no_space', retry: true } });
    await expect(client.create('more')).rejects.toMatchObject({ code: 'no_space', retry: true });
    expect(await runner.exit(sandbox, silent.execId)).toMatchObject({ ok: true });
    expect((await client.exec(sessionId, 'third')).repeated).toBe(false);
    await narrow.stop();

    await startService(stack, 'roomy-again', { ...full, VMUX_RESERVE_MIB: '0' });
    const taken = await runner.write(sandbox, writes.execId, 0, Buffer.from('held back'));
    expect(taken).toMatchObject({ ok: true, refused: null });
    expect(await runner.exit(sandbox, writes.execId, { stdout: 9 })).toMatchObject({ ok: true });
    const found = await outputOf(stack.store, sessionId, writes.execId, 'stdout');
    expect(found.toString()).toBe('held back');
    expect(await factsOf(stack.store, sessionId, 'ExecExited')).toHaveLength(2);
  });
});
