import { createHash, randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import type { Actor } from '../support/actor';
import { ApiClient } from '../support/api-client';
import { assemble, type Cast } from '../support/cast';
import { firstProcessOf, sandboxesOf, sweep } from '../support/sandboxes';

const isRoot = process.getuid?.() === 0;
const LONG = { timeoutMs: 30_000, everyMs: 50 };
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
/** Waits until another command says `touch go`. */
const UNTIL_TOLD = 'while [ ! -e go ]; do sleep 0.05; done';
/** The lines of `seq`, as a terminal shows them. */
const counted = (last: number) =>
  Array.from({ length: last }, (_, index) => `${index + 1}\r\n`).join('');

/** What is known to go wrong elsewhere, each with its name, against real processes and sandboxes. */
describeUnless(isRoot, 'namespace sandboxes need root on Linux')('It does not happen here:', () => {
  let cast: Cast;
  let api: ApiClient;
  let other: ApiClient;

  beforeAll(async () => {
    cast = await assemble({ gateway: { VMUX_KEEP_ALIVE_MS: '200' } });
    const [one = '', two = ''] = cast.gateways;
    api = new ApiClient(one, cast.apiKey());
    other = new ApiClient(two, cast.apiKey());
  }, 90_000);
  afterAll(async () => {
    try {
      for (const actor of cast.actors) await actor.kill();
      await sweep(cast);
    } finally {
      await releaseAll();
    }
  }, 60_000);

  const actors = (prefix: string): Actor[] => {
    const found = cast.actors.filter(({ name }) => name.startsWith(prefix));
    if (found.length === 0) throw new Error(`no ${prefix}`);
    return found;
  };
  const killed = async (prefix: string) => {
    await Promise.all(actors(prefix).map((actor) => actor.kill()));
  };
  const started = async (prefix: string) => {
    await Promise.all(actors(prefix).map((actor) => actor.start()));
  };
  const created = async (body: object = {}): Promise<string> => {
    const reply = await api.post('/v1/sessions', { name: 'field', ...body });
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id;
  };
  const issued = async (session: string, body: object): Promise<string> => {
    const reply = await api.post(`/v1/sessions/${session}/execs`, body);
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id;
  };
  /** Asks until it has ended: any gateway may be down in between. */
  const ended = (session: string, exec: string) =>
    until(async () => {
      const { json } = await other.get(`/v1/sessions/${session}/execs/${exec}/wait?wait=20s`);
      return json?.exit && json;
    }, LONG);
  const run = async (session: string, body: object) => ended(session, await issued(session, body));
  const hasWritten = (session: string, bytes: number) =>
    until(
      async () => (await other.raw(`/v1/sessions/${session}/logs`)).bytes.length >= bytes,
      LONG,
    );
  const historyOf = async (session: string) => {
    const { bytes } = await api.raw(`/v1/sessions/${session}/events`);
    const lines = bytes.toString().trim().split('\n');
    return lines.map((line) => JSON.parse(line));
  };
  const logOf = (session: string, exec: string, stream = 'stdout') =>
    `/v1/sessions/${session}/logs?exec=${exec}&stream=${stream}`;

  it('a fabricated exit 0 when a stream is cut', async () => {
    const session = await created();
    const seen: string[] = [];
    const body = { command: `echo begun; ${UNTIL_TOLD}; exit 7` };
    const path = `/v1/sessions/${session}/execs`;
    const cut = async () => {
      for await (const { event } of api.events(path, { method: 'POST', body })) {
        seen.push(event);
        await killed('gateway-1');
      }
    };
    await expect(cut()).rejects.toThrow();
    expect(seen).toEqual(['message']);
    await killed('runner');
    const [exec] = (await other.get(path)).json.execs;
    expect(exec).toMatchObject({ status: 'running', exit: null });
    await Promise.all([started('gateway-1'), started('runner')]);
    await run(session, { command: 'touch go' });
    expect((await ended(session, exec.id)).exit).toEqual({ kind: 'exited', code: 7 });
  }, 60_000);

  it('a fabricated exit 0 when a stream is cut behind the gateway that serves it', async () => {
    const session = await created();
    const path = `/v1/sessions/${session}/execs`;
    const body = { command: `echo begun; ${UNTIL_TOLD}; echo over; exit 7` };
    const seen: { event: string; data: { exit?: object } }[] = [];
    const streamed = (async () => {
      for await (const message of api.events(path, { method: 'POST', body })) seen.push(message);
    })().catch(() => undefined);
    await hasWritten(session, 6);
    const [{ id }] = (await api.get(path)).json.execs;
    const headers = { authorization: `Bearer ${other.key}` };
    const response = await fetch(`${other.url}${logOf(session, id)}&follow=1`, { headers });
    let text = '';
    const followed = (async () => {
      for await (const piece of response.body ?? []) text += Buffer.from(piece);
      return 'ended';
    })().catch(() => 'cut');
    await until(() => seen.length > 0 && text === 'begun\n', LONG);
    await killed('event-store');
    // They may wait for it, or be cut: neither says that anything has ended.
    const said = await Promise.race([followed, sleep(3_000)]);
    expect(said).not.toBe('ended');
    expect(seen.filter(({ event }) => event !== 'message' && event !== 'error')).toEqual([]);
    await started('event-store');
    await until(async () => (await other.get(path)).status === 200, LONG);
    await until(async () => (await api.post(path, { command: 'touch go' })).status === 201, LONG);
    expect((await ended(session, id)).exit).toEqual({ kind: 'exited', code: 7 });
    await streamed;
    for (const { data } of seen.filter(({ event }) => event === 'exit'))
      expect(data.exit).toEqual({ kind: 'exited', code: 7 });
    if ((await followed) === 'ended') expect(text).toBe('begun\nover\n');
  }, 90_000);

  it('output lost after a reconnect', async () => {
    const session = await created();
    const command =
      'for i in $(seq 40); do head -c 100000 /dev/urandom | tee -a copy; sleep 0.1; done';
    const exec = await issued(session, { command });
    const pieces: Buffer[] = [];
    let have = 0;
    let over = false;
    // Where something is lost the end never comes.
    const giveUpAt = Date.now() + 60_000;
    const follow = async () => {
      for (let reader = api; !over; reader = reader === api ? other : api) {
        if (Date.now() > giveUpAt) return;
        const path = `${logOf(session, exec)}&follow=1&offset=${have}`;
        const leave = AbortSignal.timeout(700);
        try {
          const headers = { authorization: `Bearer ${reader.key}` };
          const response = await fetch(`${reader.url}${path}`, { headers, signal: leave });
          for await (const piece of response.body ?? []) {
            pieces.push(Buffer.from(piece));
            have += piece.length;
          }
          over = response.status === 200;
        } catch {
          await sleep(50);
        }
      }
    };
    const disturb = async () => {
      // So much that the supervisor has let go of the first mebibytes.
      await hasWritten(session, 2_500_000);
      const names = ['runner', 'session-service', 'gateway-1'];
      await Promise.all(names.map(killed));
      await Promise.all(names.map(started));
    };
    await Promise.all([follow(), disturb()]);
    expect((await ended(session, exec)).exit).toEqual({ kind: 'exited', code: 0 });
    const told = await run(session, { command: 'sha256sum < copy' });
    const bytes = Buffer.concat(pieces);
    expect(bytes).toHaveLength(4_000_000);
    expect(told.output.stdout.text).toBe(`${sha256(bytes)}  -\n`);
  }, 90_000);

  it('a past-EOF cursor that skips for ever', async () => {
    const session = await created();
    const command = `printf 0123; ${UNTIL_TOLD}; printf 456789`;
    const exec = await issued(session, { command });
    await hasWritten(session, 4);
    const early = await api.get(`${logOf(session, exec)}&offset=6`);
    expect(early).toMatchObject({ status: 416, json: { code: 'offset_past_end' } });
    const waiting = api.raw(`${logOf(session, exec)}&offset=6&follow=1`);
    await run(session, { command: 'touch go' });
    expect((await waiting).bytes.toString()).toBe('6789');
    expect((await api.raw(`${logOf(session, exec)}&offset=6`)).bytes.toString()).toBe('6789');
    const late = await api.get(`${logOf(session, exec)}&offset=11&follow=1`);
    expect(late).toMatchObject({ status: 416, json: { details: { size: 10 } } });
  }, 60_000);

  it('a ghost consumer that stalls others after 8 KB', async () => {
    const session = await created();
    const exec = await issued(session, {
      command: 'sleep 0.5; head -c 8000000 /dev/urandom | tee copy; sha256sum < copy >&2',
    });
    const { port } = new URL(api.url);
    const ghosts: Socket[] = [];
    for (const accept of ['*/*', 'text/event-stream']) {
      for (let number = 0; number < 5; number += 1) {
        const ghost = connect(Number(port), '127.0.0.1').pause();
        ghost.on('error', () => undefined);
        ghost.write(
          `GET ${logOf(session, exec)}&follow=1 HTTP/1.1\r\nhost: 127.0.0.1\r\n` +
            `accept: ${accept}\r\nauthorization: Bearer ${api.key}\r\n\r\n`,
        );
        ghosts.push(ghost);
      }
    }
    try {
      const { bytes } = await api.raw(`${logOf(session, exec)}&follow=1`);
      expect(bytes).toHaveLength(8_000_000);
      const { exit, output } = await ended(session, exec);
      expect(exit).toEqual({ kind: 'exited', code: 0 });
      expect(output.stderr.text).toBe(`${sha256(bytes)}  -\n`);
      // They are all still waiting: what they did not read is held back for each of them alone.
      const { text } = await api.get('/metrics');
      expect(Number(/^vmux_gateway_followers(?:\{.*\})? (\d+)$/m.exec(text)?.[1])).toBe(10);
    } finally {
      for (const ghost of ghosts) ghost.destroy();
    }
  }, 60_000);

  it('a silent healthy command dropped for inactivity', async () => {
    const session = await created({ policy: { idleTimeoutMs: 1000 } });
    const exec = await issued(session, { command: 'sleep 4; echo still here; exit 3' });
    const path = `${logOf(session, exec)}&follow=1`;
    const raw = api.raw(path);
    const events = (await api.get(path, { accept: 'text/event-stream' })).text;
    expect(events.split(': keep-alive\n\n').length).toBeGreaterThan(5);
    expect(events).toContain('event: end');
    expect((await raw).bytes.toString()).toBe('still here\n');
    expect(await ended(session, exec)).toMatchObject({
      ...{ exit: { kind: 'exited', code: 3 }, epoch: 1 },
    });
    const types = (await historyOf(session)).map(({ type }) => type);
    const exited = types.indexOf('ExecExited');
    expect(types.slice(0, exited).filter((type) => /Suspend|Release|Stop|Lost/.test(type))).toEqual(
      [],
    );
  }, 60_000);

  it('Last-Event-ID ignored', async () => {
    const session = await created();
    const exec = await run(session, { command: 'echo 1; echo 2; echo 3' });
    const follow = async (path: string, last: string | null, most = Infinity) => {
      const headers: Record<string, string> = last === null ? {} : { 'last-event-id': last };
      const seen = [];
      for await (const message of other.events(path, { headers })) {
        seen.push(message);
        if (seen.length >= most) break;
      }
      return seen;
    };
    const logs = logOf(session, exec.id);
    const [first] = await follow(`${logs}&limit=2`, null, 1);
    const rest = await follow(logs, first?.id ?? null);
    expect(first?.data).toMatchObject({ offset: 0, b64: Buffer.from('1\n').toString('base64') });
    const text = rest.flatMap(({ event, data }) => (event === 'message' ? [data.b64] : []));
    expect(text.map((b64) => Buffer.from(b64, 'base64').toString()).join('')).toBe('2\n3\n');
    // The offset in the id counts even when somebody asks for another one.
    const [again] = await follow(`${logs}&offset=0`, first?.id ?? null, 1);
    expect(again?.data.offset).toBe(2);

    const events = `/v1/sessions/${session}/events`;
    const past = (await follow(`${events}?limit=3`, null)).filter(({ id }) => id !== null);
    expect(past).toHaveLength(3);
    const [next] = await follow(events, past.at(-1)?.id ?? null, 1);
    expect(Number(next?.id)).toBe(Number(past.at(-1)?.id) + 1);
  }, 60_000);

  it('10 MB caps from buffering', async () => {
    const size = 25_000_000;
    const session = await created();
    const { id, exit, output } = await run(session, {
      command: `head -c ${size} /dev/urandom | tee copy; sha256sum < copy >&2`,
    });
    expect(exit).toEqual({ kind: 'exited', code: 0 });
    // The answer of a wait is bounded, and says so.
    expect(output.stdout).toMatchObject({ size, truncated: true, next: 1024 * 1024 });
    const begin = Buffer.from(output.stdout.text, 'base64');
    const { bytes, trailers } = await api.raw(logOf(session, id));
    expect(bytes).toHaveLength(size);
    expect(output.stderr.text).toBe(`${sha256(bytes)}  -\n`);
    expect(trailers['vmux-log-end']).toBe('end');
    expect(bytes.subarray(0, begin.length).equals(begin)).toBe(true);
    const digest = createHash('sha256');
    for await (const { event, data } of api.events(logOf(session, id)))
      if (event === 'message') digest.update(Buffer.from(data.b64, 'base64'));
    expect(`${digest.digest('hex')}  -\n`).toBe(output.stderr.text);
  }, 90_000);

  it('PTY output truncated at exit', async () => {
    const session = await created();
    const expected = counted(20_000);
    for (let round = 0; round < 5; round += 1) {
      const body = { argv: ['seq', '20000'], pty: { cols: 80, rows: 24 } };
      const exec = await run(session, body);
      expect(exec).toMatchObject({
        ...{ exit: { kind: 'exited', code: 0 }, sizes: { pty: expected.length } },
      });
      const { bytes } = await api.raw(logOf(session, exec.id, 'pty'));
      expect(bytes.toString()).toBe(expected);
    }
  }, 60_000);

  it('a duplicate sandbox after a lost create response', async () => {
    const [runner] = actors('runner');
    const key = { 'idempotency-key': randomUUID() };
    const body = { name: 'once' };
    runner?.signal('SIGSTOP');
    const reply = await api.post('/v1/sessions', body, key);
    expect(reply.status).toBe(201);
    const session: string = reply.json.id;
    // The order waits in the runner's connection, and nobody will take the report.
    await sleep(200);
    await killed('session-service');
    const existing = () => sandboxesOf(cast.sandboxesDir, session);
    expect(existing()).toEqual([]);
    runner?.signal('SIGCONT');
    const [first] = await until(() => existing().length > 0 && existing(), LONG);
    await until(() => firstProcessOf(cast.sandboxesDir, session) > 0, LONG);
    await killed('runner');
    await Promise.all([started('session-service'), started('runner')]);
    const repeated = await until(async () => {
      const again = await api.post('/v1/sessions', body, key);
      return again.status === 201 && again;
    }, LONG);
    expect(repeated.json.id).toBe(session);
    expect((await run(session, { command: 'echo one' })).output.stdout.text).toBe('one\n');
    expect(existing()).toEqual([first]);
    const types = (await historyOf(session)).map(({ type }) => type);
    for (const once of ['SessionCreated', 'SandboxRequested', 'SandboxStarted'])
      expect([once, types.filter((type) => type === once)]).toEqual([once, [once]]);
  }, 60_000);

  it('a bare 502 with no reason after an out-of-memory kill', async () => {
    const session = await created({ resources: { memoryMiB: 64 } });
    const answer = await api.post(`/v1/sessions/${session}/execs?wait=30s`, {
      argv: ['dd', 'if=/dev/zero', 'of=/dev/null', 'bs=300M', 'count=1'],
    });
    expect(answer).toMatchObject({
      status: 200,
      json: { status: 'exited', exit: { kind: 'signalled', signal: 'SIGKILL' } },
    });
    // Killed too, and not for want of memory.
    const shot = await run(session, { command: 'kill -9 $$' });
    expect(shot.exit).toEqual({ kind: 'signalled', signal: 'SIGKILL' });
    const reasons = (await historyOf(session)).filter(({ type }) => type === 'LimitExceeded');
    expect(reasons.map(({ data }) => data)).toEqual([
      expect.objectContaining({
        ...{ limit: 'memory', level: 'killed', max: 64 * 2 ** 20, execId: answer.json.id },
      }),
    ]);
    const after = await run(session, { command: 'echo still usable' });
    expect(after).toMatchObject({ epoch: 1, output: { stdout: { text: 'still usable\n' } } });
  }, 60_000);

  it('a replaced sandbox that silently starts empty', async () => {
    const session = await created();
    await run(session, { command: 'echo kept > /workspace/file' });
    const doomed = await issued(session, { command: 'echo begun; sleep 1000' });
    await hasWritten(session, 6);
    process.kill(firstProcessOf(cast.sandboxesDir, session), 'SIGKILL');
    const lost = await ended(session, doomed);
    expect(lost).toMatchObject({
      ...{ status: 'unknown', epoch: 1, exit: { kind: 'unknown', reason: 'sandbox_lost' } },
      output: { stdout: { text: 'begun\n' } },
    });
    expect((await api.get(`/v1/sessions/${session}`)).json).toMatchObject({
      ...{ status: 'lost', sandbox: null },
    });
    const next = await run(session, { command: 'cat /workspace/file' });
    expect(next).toMatchObject({ epoch: 2, exit: { kind: 'exited', code: 1 } });
    expect((await api.get(`/v1/sessions/${session}`)).json.sandbox.epoch).toBe(2);
    const told = (await historyOf(session)).flatMap(({ type, data }) =>
      /^(SandboxStarted|SandboxLost|ExecOutcomeUnknown)$/.test(type) ? [[type, data.epoch]] : [],
    );
    expect(told).toEqual([
      ['SandboxStarted', 1],
      ['SandboxLost', 1],
      ['ExecOutcomeUnknown', 1],
      ['SandboxStarted', 2],
    ]);
  }, 60_000);
});
