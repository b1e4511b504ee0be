import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describeUnless, releaseAll, seededRandom, until } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { EmbeddedStack } from '../support/embedded-stack';
import { firstProcessOf } from '../support/sandboxes';
import { TerminalClient, type TerminalOptions } from '../support/terminal-client';

const isRoot = process.getuid?.() === 0;

/** Terminals through the gateway, the log, the tunnel, the runner and the supervisor. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('attaching', () => {
  let stack: EmbeddedStack;
  let api: ApiClient;
  let session: string;
  const open: TerminalClient[] = [];

  beforeAll(async () => {
    stack = await EmbeddedStack.start();
    ({ api } = stack);
    ({ id: session } = await stack.create({ name: 'attach' }));
  }, 90_000);
  afterEach(() => {
    for (const client of open.splice(0)) client.close();
  });
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 90_000);

  const pathOf = (exec: string) => `/v1/sessions/${session}/execs/${exec}/attach`;
  const attached = async (exec: string, options: TerminalOptions = {}) => {
    const client = await TerminalClient.open(api.url, pathOf(exec), { key: api.key, ...options });
    open.push(client);
    return client;
  };
  const issued = async (body: object) => {
    const reply = await api.post(`/v1/sessions/${session}/execs`, body);
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id as string;
  };
  const terminal = (command = 'exec sh -i', size = { cols: 80, rows: 24 }) =>
    issued({ command, pty: size, env: { PS1: '$ ', HISTFILE: '' } });

  it('shows the screen, takes what is typed, and tells the exit', async () => {
    const exec = await terminal();
    const client = await attached(exec, { query: { cols: 100, rows: 30 } });
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

  /** Both have seen as much, and it looks the same to them. */
  const agree = async (one: TerminalClient, other: TerminalClient) => {
    for (let at = -1; at < 0; ) {
      const next = await until(() => one.next === other.next && one.next, { timeoutMs: 30_000 });
      const pictures = [await one.picture(), await other.picture()];
      if (one.next !== next || other.next !== next) continue;
      expect(pictures[1]).toEqual(pictures[0]);
      at = next;
    }
  };
  const lastOf = async (exec: string) => attached(exec, { query: { mode: 'watch' } });
  /** Kills the gateway and returns once another one serves in its place. */
  const gatewayReplaced = async () => {
    const before = stack.pidOf('gateway');
    process.kill(before, 'SIGKILL');
    await until(
      async () => {
        const reply = await api.get('/health').catch(() => null);
        return reply !== null && stack.pidOf('gateway') !== before;
      },
      { timeoutMs: 60_000, everyMs: 100 },
    );
  };
  const again = async (exec: string, options: TerminalOptions) =>
    until(() => attached(exec, options).catch(() => null), { timeoutMs: 60_000, everyMs: 200 });

  describe('a full-screen program', () => {
    it('looks the same to whoever attaches later, and takes the size of the last one', async () => {
      await api.call('PUT', `/v1/sessions/${session}/files?path=/workspace/text&parents=1`, {
        body: Buffer.from(Array.from({ length: 200 }, (_, n) => `line ${n} 漢字 é\n`).join('')),
      });
      const exec = await terminal(
        'exec vim -u NONE -N +"set nu ruler" +"syntax on" /workspace/text',
      );
      const first = await attached(exec, { query: { cols: 80, rows: 24 } });
      await first.shows(/line 5 漢字 é/);
      first.type('50Gihello \x1b');
      await first.shows(/50 hello line 49/);
      await until(async () => !(await first.text()).includes('INSERT'), { timeoutMs: 30_000 });
      const second = await lastOf(exec);
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
      const late = await lastOf(exec);
      await late.ended();
      expect(late.exit).toEqual(first.exit);
    }, 120_000);

    it('is there again after the gateway was killed: resumed by offset, and repainted', async () => {
      const exec = await terminal('exec less -R /workspace/text');
      const client = await attached(exec, { query: { cols: 90, rows: 20 } });
      await client.shows(/line 18 漢字/);
      client.type('G');
      await client.shows(/line 199 漢字/);
      const { writer } = client.hello;
      await gatewayReplaced();
      await client.ended();
      const fresh = await again(exec, { query: { mode: 'watch' } });
      await agree(client, fresh);
      const resumed = await again(exec, { query: { offset: client.next ?? 0, writer } });
      resumed.sent = client.sent;
      resumed.type('g');
      await resumed.prints(/line 0 漢字/);
      expect(resumed.screens).toHaveLength(0);
      await fresh.shows(/line 0 漢字/);
      resumed.type('q');
      await resumed.ended();
      expect(resumed.exit).toMatchObject({ exit: { kind: 'exited', code: 0 } });
    }, 180_000);
  });

  it('is told when the gateway stops, and does not keep it from stopping', async () => {
    const exec = await terminal();
    const client = await attached(exec);
    await client.shows(/\$ /);
    client.socket.pause();
    const watcher = await attached(exec, { query: { mode: 'watch' } });
    const before = stack.pidOf('gateway');
    process.kill(before, 'SIGTERM');
    await watcher.ended();
    expect(watcher.closed?.code).toBe(1001);
    await until(() => stack.pidOf('gateway') !== before, { timeoutMs: 60_000, everyMs: 100 });
    const back = await again(exec, { query: { offset: watcher.next ?? 0 } });
    back.type('exit\n');
    await back.ended();
    expect(back.exit).toMatchObject({ exit: { kind: 'exited' } });
  }, 120_000);

  it('wakes a session that is suspended; watching does not', async () => {
    const { json } = await api.post('/v1/sessions', { name: 'sleeper' });
    const statusOf = async () => (await api.get(`/v1/sessions/${json.id}`)).json.status;
    const shell = await api.post(`/v1/sessions/${json.id}/shell`, {});
    const path = `/v1/sessions/${json.id}/execs/${shell.json.id}/attach`;
    const opened = async (options: TerminalOptions = {}) => {
      const client = await TerminalClient.open(api.url, path, { key: api.key, ...options });
      open.push(client);
      return client;
    };
    const first = await opened();
    await first.shows(/[$#] $/m);
    first.close();
    await api.post(`/v1/sessions/${json.id}/suspend`);
    await until(async () => (await statusOf()) === 'suspended', { timeoutMs: 30_000 });
    const watcher = await opened({ query: { mode: 'watch' } });
    await watcher.shows(/[$#] $/m);
    expect(await statusOf()).toBe('suspended');
    const back = await opened();
    await until(async () => (await statusOf()) === 'running', { timeoutMs: 30_000 });
    back.type('echo awake $((1 + 1))\n');
    await watcher.shows(/^awake 2$/m);
    await api.call('DELETE', `/v1/sessions/${json.id}?force=1`);
  }, 120_000);

  describe('output', () => {
    it('is whole after any number of dropped connections, with characters cut anywhere', async () => {
      const line = '漢字カナ🎉é-'.repeat(8);
      const exec = await terminal(
        `stty -opost; for i in $(seq 1 6000); do printf '%s %s\\n' $i '${line}'; done`,
      );
      const random = seededRandom(6);
      const pieces: Buffer[] = [];
      let offset = 0;
      let drops = 0;
      for (;;) {
        const client = await attached(exec, { query: { offset } });
        const enough = 1 + random.integer(150_000);
        await until(() => client.closed !== null || client.output.length >= enough, {
          timeoutMs: 60_000,
          everyMs: 5,
        });
        client.close();
        const { output } = client;
        pieces.push(output);
        offset += output.length;
        expect(client.next ?? offset).toBe(offset);
        if (client.exit) break;
        drops += 1;
      }
      expect(drops).toBeGreaterThan(3);
      const whole = Buffer.concat(pieces);
      const path = `/v1/sessions/${session}/logs?exec=${exec}&stream=pty`;
      const { bytes } = await api.raw(path);
      expect(sha256(whole)).toBe(sha256(bytes));
      expect(whole.toString().split('\n').slice(0, -1)).toEqual(
        Array.from({ length: 6000 }, (_, n) => `${n + 1} ${line}`),
      );
    }, 180_000);

    it('waits for a client that does not read, and holds up nobody else', async () => {
      const exec = await terminal('head -c 30000000 /dev/zero | tr "\\0" x; echo; echo finished');
      const slow = await attached(exec, { query: { offset: 0 } });
      slow.socket.pause();
      const quick = await attached(exec, { query: { offset: 0 } });
      await quick.ended();
      expect(quick.output.length).toBeGreaterThan(30_000_000);
      expect(slow.exit).toBeNull();
      slow.socket.resume();
      await slow.ended();
      expect(sha256(slow.output)).toBe(sha256(quick.output));
      const late = await attached(exec);
      await late.ended();
      expect(await late.text()).toMatch(/finished/);
    }, 180_000);
  });

  describe('input', () => {
    it('is taken once, in order, across a gateway and a runner that are killed and connections that drop', async () => {
      const input = seededRandom(7).bytes(200_000).toString('base64');
      const exec = await terminal(
        `stty raw -echo; echo ready; head -c ${input.length} | sha256sum; exec sleep 1000`,
      );
      const writer = Date.now() * 1000;
      let sent = 0;
      let taken = 0;
      let runnerKilled = false;
      for (let round = 0; taken < input.length; round += 1) {
        const client = await again(exec, { query: { offset: 0, writer } });
        if (round === 0) await client.prints('ready');
        // What was not acknowledged is sent again, from there.
        for (sent = taken; sent < input.length && client.closed === null; ) {
          const piece = input.slice(sent, sent + 5000);
          client.sendInput(sent, Buffer.from(piece));
          sent += piece.length;
          await pause(20);
          if (round === 0 && sent > 50_000) await gatewayReplaced();
          if (round === 1 && sent > 120_000) break;
          if (round === 2 && !runnerKilled) {
            runnerKilled = true;
            process.kill(stack.pidOf('runner-local'), 'SIGKILL');
          }
        }
        if (round > 1) await until(() => client.taken === input.length, { timeoutMs: 60_000 });
        expect(client.errors).toEqual([]);
        taken = Math.max(taken, client.taken);
        client.close();
      }
      const client = await attached(exec, { query: { offset: 0 } });
      await client.prints(createHash('sha256').update(input).digest('hex'));
      await api.post(`/v1/sessions/${session}/execs/${exec}/cancel?grace=0s`);
    }, 180_000);

    it('that does not go on where the last ended is refused, and the connection stays', async () => {
      const exec = await terminal();
      const client = await attached(exec);
      client.type('echo one\n');
      client.sendInput(500, Buffer.from('x'));
      await until(() => client.errors.length > 0, { timeoutMs: 20_000 });
      expect(client.errors[0]).toMatchObject({
        code: 'input_gap',
        details: { expected: 9 },
        fatal: false,
      });
      client.sendInput(5, Buffer.from('one\necho two\n'));
      await client.shows(/^two$/m);
      expect((await client.text()).match(/^one$/gm)).toHaveLength(1);
      client.socket.send('text');
      await client.ended();
      expect(client.closed?.code).toBe(1008);
      await api.post(`/v1/sessions/${session}/execs/${exec}/cancel?grace=0s`);
    }, 60_000);
  });

  describe('several clients', () => {
    it('share one terminal, whose size is that of who typed last', async () => {
      const exec = await terminal();
      const one = await attached(exec, { query: { cols: 100, rows: 30 } });
      await one.shows(/\$ /);
      const two = await attached(exec, { query: { cols: 60, rows: 20 } });
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

    it('who may only read watch, and those of others, of nowhere or of another site see nothing', async () => {
      const exec = await terminal();
      const reader = await api.post('/v1/api-keys', { name: 'reader', scopes: ['sessions:read'] });
      const watcher = await attached(exec, {
        key: reader.json.key,
        query: { cols: 33, rows: 11 },
      });
      await until(() => watcher.hello, { timeoutMs: 10_000 });
      expect(watcher.hello.mode).toBe('watch');
      watcher.type('x');
      await until(() => watcher.errors.length > 0, { timeoutMs: 10_000 });
      expect(watcher.errors[0]).toMatchObject({ code: 'forbidden', fatal: false });
      expect(watcher.resizes).toEqual([]);

      const refusal = async (options: TerminalOptions, path = pathOf(exec)) => {
        const { status } = await TerminalClient.open(api.url, path, options).catch(
          (fault) => fault,
        );
        return status;
      };
      const key = api.key;
      expect(await refusal({})).toBe(401);
      expect(await refusal({ key: `${key}x` })).toBe(401);
      expect(await refusal({ key, headers: { origin: 'http://evil.example' } })).toBe(403);
      expect(await refusal({ key, headers: { host: 'evil.example' } })).toBe(421);
      expect(await refusal({ key, query: { cols: 0, rows: 1 } })).toBe(400);
      expect(await refusal({ key, query: { offset: '-1' } })).toBe(400);
      expect(await refusal({ key, query: { what: 1 } })).toBe(400);
      expect(await refusal({ key }, pathOf('e000000000000'))).toBe(404);
      const stranger = await api.post('/v1/api-keys', {
        ...{ name: 'stranger', owner: 'stranger', scopes: ['sessions:read', 'sessions:write'] },
      });
      expect(await refusal({ key: stranger.json.key })).toBe(404);
      const plain = await issued({ command: 'sleep 1000' });
      expect(await refusal({ key }, pathOf(plain))).toBe(409);

      const { json } = await api.post(`/v1/sessions/${session}/tickets`);
      const browser = { query: { ticket: json.ticket }, headers: { origin: api.url } };
      const ticketed = await attached(exec, { key: null, ...browser });
      ticketed.type('echo from a $((1 + 1))nd browser\n');
      await watcher.shows(/from a 2nd browser/);
      expect(await refusal(browser)).toBe(401);

      await api.call('DELETE', `/v1/api-keys/${reader.json.id}`);
      await watcher.ended();
      expect(watcher.closed?.code).toBe(1008);
      for (const each of [exec, plain])
        await api.post(`/v1/sessions/${session}/execs/${each}/cancel?grace=0s`);
    }, 60_000);
  });

  it('is open to a share to watch or to type, until it is revoked', async () => {
    const exec = await terminal();
    const shared = async (rights: readonly string[]) =>
      (await api.post(`/v1/sessions/${session}/shares`, { rights })).json;
    const [watch, type, logs] = [
      await shared(['watch']),
      await shared(['type']),
      await shared(['logs']),
    ];
    const watcher = await attached(exec, { key: watch.token });
    const typist = await attached(exec, { key: type.token, query: { cols: 90, rows: 25 } });
    await expect(attached(exec, { key: logs.token })).rejects.toMatchObject({ status: 403 });
    typist.type('echo shared $((1 + 1))\n');
    await watcher.shows(/^shared 2$/m);
    expect([watcher.hello.mode, typist.hello.mode]).toEqual(['watch', 'type']);
    watcher.type('x');
    await until(() => watcher.errors.length > 0, { timeoutMs: 10_000 });
    expect(watcher.errors[0]).toMatchObject({ code: 'forbidden', fatal: false });
    await api.call('DELETE', `/v1/sessions/${session}/shares/${type.id}`);
    await typist.ended();
    expect(typist.closed?.code).toBe(1008);
    expect(watcher.closed).toBeNull();
    await expect(attached(exec, { key: type.token })).rejects.toMatchObject({ status: 401 });
    await api.post(`/v1/sessions/${session}/execs/${exec}/cancel?grace=0s`);
  }, 60_000);

  it('finds the shell of a session, or starts one: a login shell with a terminal and UTF-8', async () => {
    const path = `/v1/sessions/${session}/shell`;
    const asked = await Promise.all([1, 2, 3].map(() => api.post(path, { cols: 120, rows: 40 })));
    const ids = new Set(asked.map(({ json }) => json.id));
    expect(ids.size).toBe(1);
    expect(await api.post(path)).toMatchObject({ status: 200, json: { id: asked[0]?.json.id } });
    const [exec = ''] = ids;
    const client = await attached(exec, { query: { cols: 120, rows: 40 } });
    client.type('shopt -q login_shell && echo "$TERM $LANG" login $((1 + 1)) é; pwd; tty\n');
    await client.shows(/^xterm-256color C.UTF-8 login 2 é\n\/workspace\n\/dev\/pts\/\d+$/m);
    client.type('exit\n');
    await client.ended();
    const next = await api.post(path, {});
    expect(next.status).toBe(201);
    expect(ids.has(next.json.id)).toBe(false);
    expect(await api.post(path, { cols: 0 })).toMatchObject({ status: 400 });
    await api.post(`/v1/sessions/${session}/execs/${next.json.id}/cancel?grace=0s`);
  }, 60_000);

  it('replays no more of a long output than its tail, for a gateway that has just been started', async () => {
    const exec = await terminal(
      'printf "\\033[?2004h"; head -c 20000000 /dev/zero | tr "\\0" y; printf "\\033[H\\033[2J\\033[32mthe end"; exec sleep 1000',
    );
    const client = await attached(exec, { query: { cols: 80, rows: 24 } });
    await client.shows(/^the end/);
    await gatewayReplaced();
    const fresh = await again(exec, { query: { mode: 'watch' } });
    await fresh.shows(/^the end$/m);
    expect(fresh.output.length).toBe(0);
    expect(fresh.screens[0]?.bytes.length).toBeLessThan(10_000);
    await api.post(`/v1/sessions/${session}/execs/${exec}/cancel?grace=0s`);
  }, 180_000);

  it('says that the outcome is unknown when the sandbox is lost, after all output that there is', async () => {
    const { json } = await api.post('/v1/sessions', { name: 'lost' });
    const exec = await api.post(`/v1/sessions/${json.id}/execs`, {
      command: 'echo before; exec sleep 1000',
      pty: { cols: 80, rows: 24 },
    });
    const path = `/v1/sessions/${json.id}/execs/${exec.json.id}/attach`;
    const client = await TerminalClient.open(api.url, path, { key: api.key });
    open.push(client);
    await client.shows(/before/);
    process.kill(firstProcessOf(join(stack.dataDir, 'runner/ns/s'), json.id), 'SIGKILL');
    await client.ended();
    expect(client.exit).toMatchObject({
      exit: { kind: 'unknown', reason: 'sandbox_lost' },
      next: client.next,
    });
    await api.call('DELETE', `/v1/sessions/${json.id}?force=1`);
  }, 120_000);

  it('echoes a keystroke', async () => {
    const exec = await terminal('stty -icanon; exec cat');
    const client = await attached(exec, { query: { offset: 0 } });
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
    await api.post(`/v1/sessions/${session}/execs/${exec}/cancel?grace=0s`);
  }, 60_000);
});

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
