import { join } from 'node:path';
import { noDockerEngineBecause, until } from '@vmux/testing';
import { cli } from '../../apps/cli/test/cli';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';
import { ticksOf } from '../support/sandboxes';

const noDocker = noDockerEngineBecause();

/** Counts aloud for as long as nobody says stop, and says who it is at both ends. */
const COUNTER =
  'i=0; echo pid $$; while [ ! -e /tmp/enough ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo pid $$ saw $i';

function expectCounted(output: string): void {
  const lines = output.trim().split('\n');
  const [first] = lines;
  const count = lines.length - 2;
  expect(lines.slice(1, -1)).toEqual(Array.from({ length: count }, (_, n) => String(n + 1)));
  expect(lines.at(-1)).toBe(`${first} saw ${count}`);
}

describeOnStack({ docker: true })('a session that rests', (stack) => {
  const suspend = async (session: ClientSession) => {
    expect(await session.ask('suspend')).toMatchObject({ status: 202 });
    await session.becomes('suspended');
  };

  for (const provider of noDocker ? ['ns'] : ['ns', 'docker']) {
    it(`keeps memory, process ids and every byte of output across suspend and resume on ${provider}`, async () => {
      const session = await stack.create({ provider });
      const exec = await session.start(COUNTER);
      await until(async () => (await session.output(exec)).split('\n').length > 10);
      for (let round = 0; round < 3; round += 1) {
        await suspend(session);
        // What was written before the freeze still arrives; after that, time stands still.
        let seen = '';
        await until(
          async () => {
            const before = seen;
            seen = await session.output(exec);
            return seen === before;
          },
          { everyMs: 300, timeoutMs: 20_000 },
        );
        expect(await session.ask('resume')).toMatchObject({ status: 202 });
        await session.becomes('running');
        await until(async () => (await session.output(exec)).length > seen.length);
      }
      await session.run('touch /tmp/enough');
      expect(await session.ended(exec)).toMatchObject({ exit: { kind: 'exited', code: 0 } });
      expectCounted(await session.output(exec));
      await session.stop();
    }, 120_000);
  }

  it('uses no processor while it is suspended, however busy it was', async () => {
    const directory = join(stack.dataDir, 'runner/ns/s');
    const [still, busy] = await Promise.all([stack.create(), stack.create()]);
    for (const session of [still, busy]) await session.start('while :; do :; done');
    const used = ({ id }: ClientSession) => ticksOf(directory, id);
    await until(() => used(still) > 5 && used(busy) > 5, { timeoutMs: 30_000 });
    await suspend(still);
    const before = { still: used(still), busy: used(busy) };
    await until(() => used(busy) > before.busy + 50, { timeoutMs: 60_000 });
    expect(used(still)).toBe(before.still);
    expect(await still.ask('resume')).toMatchObject({ status: 202 });
    await until(() => used(still) > before.still, { timeoutMs: 30_000 });
    await Promise.all([still.stop(), busy.stop()]);
  }, 120_000);

  it('is woken by a command and by input, and the request waits instead of failing', async () => {
    const session = await stack.create();
    const cat = await session.start('cat', { stdin: true });
    await until(async () => (await session.exec(cat)).status === 'running');
    await suspend(session);
    const typed = await stack.api.call('POST', `${session.path}/execs/${cat}/stdin?eof=true`, {
      body: Buffer.from('are you there?'),
    });
    expect(typed).toMatchObject({ status: 200, json: { next: 15 } });
    expect(await session.ended(cat)).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expect(await session.output(cat)).toBe('are you there?');
    await suspend(session);
    expect(await session.run('echo awake')).toBe('awake\n');
    expect((await session.info()).status).toBe('running');
    await session.stop();
  }, 90_000);

  it('rests and wakes by the command line', async () => {
    const session = await stack.create();
    expect(await cli(['suspend', session.id], stack.env)).toMatchObject({ code: 0 });
    expect((await session.info()).status).toBe('suspended');
    const again = await cli(['suspend', '--json', session.id], stack.env);
    expect(JSON.parse(again.stdout.toString())).toEqual({
      session: session.id,
      status: 'suspended',
    });
    expect(await cli(['resume', session.id], stack.env)).toMatchObject({ code: 0, stderr: '' });
    expect((await session.info()).status).toBe('running');
    expect((await cli(['suspend'], stack.env)).code).toBe(2);
    await session.stop();
  }, 90_000);

  it('survives the death of its runner while it is suspended', async () => {
    const session = await stack.create();
    const exec = await session.start(COUNTER);
    await until(async () => (await session.output(exec)).split('\n').length > 5);
    await suspend(session);
    process.kill(stack.pidOf('runner-local'), 'SIGKILL');
    await session.run('touch /tmp/enough');
    expect(await session.ended(exec)).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    expectCounted(await session.output(exec));
    await session.stop();
  }, 120_000);
});
