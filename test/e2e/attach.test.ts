import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import { agree, Terminals } from '../support/terminals';

/** Terminals through the gateway, the log, the tunnel, the runner and the supervisor. */
describeOnStack()('a terminal', (stack) => {
  let terminals: Terminals;
  beforeAll(async () => {
    terminals = await Terminals.of(stack);
  }, 90_000);
  afterEach(() => terminals.closeAll());

  it('shows the screen, takes what is typed, and tells the exit', async () => {
    const exec = await terminals.start();
    const client = await terminals.attached(exec, { query: { cols: 100, rows: 30 } });
    await until(() => client.hello, { timeoutMs: 10_000 });
    expect(client.hello).toMatchObject({ protocol: 1, execId: exec, mode: 'type' });
    client.type('echo $((6 * 7)); stty size\n');
    await client.shows(/^42\n30 100$/m);
    expect(client.taken).toBe(client.sent);
    client.type('exit 5\n');
    await client.ended();
    expect(client.exit).toMatchObject({ exit: { kind: 'exited', code: 5 }, next: client.next });
    expect(client.closed?.code).toBe(1000);
  }, 90_000);

  it('shows a full-screen program as it is to whoever attaches later, and takes the size of the last one', async () => {
    await stack.api.call(
      'PUT',
      `/v1/sessions/${terminals.session}/files?path=/workspace/text&parents=1`,
      {
        body: Buffer.from(Array.from({ length: 200 }, (_, n) => `line ${n} 漢字 é\n`).join('')),
      },
    );
    const exec = await terminals.start(
      'exec vim -u NONE -N +"set nu ruler" +"syntax on" /workspace/text',
    );
    const first = await terminals.attached(exec, { query: { cols: 80, rows: 24 } });
    await first.shows(/line 5 漢字 é/);
    first.type('50Gihello \x1b');
    await first.shows(/50 hello line 49/);
    await until(async () => !(await first.text()).includes('INSERT'), { timeoutMs: 30_000 });
    const second = await terminals.watching(exec);
    await agree(first, second);
    expect(second.screens).toHaveLength(1);
    expect(second.screens[0]?.bytes.includes('\x1b[?1049h')).toBe(true);
    first.resize(100, 40);
    await until(() => second.resizes.some(({ cols, rows }) => cols === 100 && rows === 40), {
      timeoutMs: 20_000,
    });
    await second.shows(/line 60 漢字/);
    await agree(first, second);
    first.type(':q!\r');
    await Promise.all([first.ended(), second.ended()]);
    expect([first.exit, second.exit]).toMatchObject([
      { exit: { kind: 'exited', code: 0 } },
      { exit: { kind: 'exited', code: 0 } },
    ]);
    const late = await terminals.watching(exec);
    await late.ended();
    expect(late.exit).toEqual(first.exit);
  }, 120_000);

  it('is shared by several clients, and has the size of who typed last', async () => {
    const exec = await terminals.start();
    const one = await terminals.attached(exec, { query: { cols: 100, rows: 30 } });
    await one.shows(/\$ /);
    const two = await terminals.attached(exec, { query: { cols: 60, rows: 20 } });
    await until(() => one.resizes.at(-1)?.cols === 60, { timeoutMs: 20_000 });
    one.type('stty size\n');
    await one.shows(/^30 100$/m);
    two.type('stty size\n');
    await one.shows(/^20 60$/m);
    await agree(one, two);
    one.close();
    two.type('exit 3\n');
    await two.ended();
    expect(two.exit.exit).toEqual({ kind: 'exited', code: 3 });
  }, 60_000);

  it('wakes a session that is suspended; watching does not', async () => {
    const sleeping = await Terminals.of(stack, 'sleeper');
    const sleeper = stack.session(sleeping.session);
    const shell = (await sleeper.ask('shell')).json.id;
    const first = await sleeping.attached(shell);
    await first.shows(/[$#] $/m);
    first.close();
    await sleeper.ask('suspend');
    await sleeper.becomes('suspended');
    const watcher = await sleeping.watching(shell);
    await watcher.shows(/[$#] $/m);
    expect((await sleeper.info()).status).toBe('suspended');
    const back = await sleeping.attached(shell);
    await sleeper.becomes('running');
    back.type('echo awake $((1 + 1))\n');
    await watcher.shows(/^awake 2$/m);
    sleeping.closeAll();
  }, 120_000);

  it('finds the shell of a session, or starts one: a login shell with a terminal and UTF-8', async () => {
    const path = `/v1/sessions/${terminals.session}/shell`;
    const asked = await Promise.all(
      [1, 2, 3].map(() => stack.api.post(path, { cols: 120, rows: 40 })),
    );
    const ids = new Set(asked.map(({ json }) => json.id));
    expect(ids.size).toBe(1);
    expect(await stack.api.post(path)).toMatchObject({
      status: 200,
      json: { id: asked[0]?.json.id },
    });
    const [exec = ''] = ids;
    const client = await terminals.attached(exec, { query: { cols: 120, rows: 40 } });
    client.type('shopt -q login_shell && echo "$TERM $LANG" login $((1 + 1)) é; pwd; tty\n');
    await client.shows(/^xterm-256color C.UTF-8 login 2 é\n\/workspace\n\/dev\/pts\/\d+$/m);
    client.type('exit\n');
    await client.ended();
    const next = await stack.api.post(path, {});
    expect(next.status).toBe(201);
    expect(ids.has(next.json.id)).toBe(false);
    expect(await stack.api.post(path, { cols: 0 })).toMatchObject({ status: 400 });
    await terminals.cancel(next.json.id);
  }, 60_000);

  it('echoes a keystroke', async () => {
    const exec = await terminals.start('stty -icanon; exec cat');
    const client = await terminals.attached(exec, { query: { offset: 0 } });
    const times: number[] = [];
    for (let key = 0; key < 60; key += 1) {
      const expected = (client.next ?? 0) + 1;
      const begun = performance.now();
      client.type('k');
      await until(() => (client.next ?? 0) >= expected, { timeoutMs: 10_000, everyMs: 0 });
      times.push(performance.now() - begun);
    }
    times.sort((a, b) => a - b);
    expect(client.output.length).toBeGreaterThanOrEqual(60);
    if (process.env.VMUX_SHOW_TIMES)
      console.log(
        `keystroke echo: p50 ${times[30]?.toFixed(1)} ms, p95 ${times[57]?.toFixed(1)} ms`,
      );
    await terminals.cancel(exec);
  }, 60_000);
});
