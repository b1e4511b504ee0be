import { join } from 'node:path';
import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import { firstProcessOf } from '../support/sandboxes';
import { agree, Terminals } from '../support/terminals';

describeOnStack()('a terminal whose gateway or sandbox ends', (stack) => {
  let terminals: Terminals;
  beforeAll(async () => {
    terminals = await Terminals.of(stack);
  }, 90_000);
  afterEach(() => terminals.closeAll());

  it('shows a full-screen program again after the gateway was killed: resumed by offset, and repainted', async () => {
    await stack
      .session(terminals.session)
      .run('for n in $(seq 0 199); do echo line $n 漢字; done > text');
    const exec = await terminals.start('exec less -R /workspace/text');
    const client = await terminals.attached(exec, { query: { cols: 90, rows: 20 } });
    await client.shows(/line 18 漢字/);
    client.type('G');
    await client.shows(/line 199 漢字/);
    const { writer } = client.hello;
    await stack.gatewayReplaced();
    await client.ended();
    const fresh = await terminals.again(exec, { query: { mode: 'watch' } });
    await agree(client, fresh);
    const resumed = await terminals.again(exec, { query: { offset: client.next ?? 0, writer } });
    resumed.sent = client.sent;
    resumed.type('g');
    await resumed.prints(/line 0 漢字/);
    expect(resumed.screens).toHaveLength(0);
    await fresh.shows(/line 0 漢字/);
    resumed.type('q');
    await resumed.ended();
    expect(resumed.exit).toMatchObject({ exit: { kind: 'exited', code: 0 } });
  }, 180_000);

  it('is told when the gateway stops, and does not keep it from stopping', async () => {
    const exec = await terminals.start();
    const client = await terminals.attached(exec);
    await client.shows(/\$ /);
    client.socket.pause();
    const watcher = await terminals.watching(exec);
    const before = stack.pidOf('gateway');
    process.kill(before, 'SIGTERM');
    await watcher.ended();
    expect(watcher.closed?.code).toBe(1001);
    await until(() => stack.pidOf('gateway') !== before, { timeoutMs: 60_000, everyMs: 100 });
    const back = await terminals.again(exec, { query: { offset: watcher.next ?? 0 } });
    back.type('exit\n');
    await back.ended();
    expect(back.exit).toMatchObject({ exit: { kind: 'exited' } });
  }, 120_000);

  it('replays no more of a long output than its tail, for a gateway that has just been started', async () => {
    const exec = await terminals.start(
      'printf "\\033[?2004h"; head -c 20000000 /dev/zero | tr "\\0" y; printf "\\033[H\\033[2J\\033[32mthe end"; exec sleep 1000',
    );
    const client = await terminals.attached(exec, { query: { cols: 80, rows: 24 } });
    await client.shows(/^the end/);
    await stack.gatewayReplaced();
    const fresh = await terminals.again(exec, { query: { mode: 'watch' } });
    await fresh.shows(/^the end$/m);
    expect(fresh.output.length).toBe(0);
    expect(fresh.screens[0]?.bytes.length).toBeLessThan(10_000);
    await terminals.cancel(exec);
  }, 180_000);

  it('says that the outcome is unknown when the sandbox is lost, after all output that there is', async () => {
    const lost = await Terminals.of(stack, 'lost');
    const exec = await lost.start('echo before; exec sleep 1000');
    const client = await lost.attached(exec);
    await client.shows(/before/);
    process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), lost.session), 'SIGKILL');
    await client.ended();
    expect(client.exit).toMatchObject({
      exit: { kind: 'unknown', reason: 'sandbox_lost' },
      next: client.next,
    });
    lost.closeAll();
  }, 120_000);
});
