import { createHash } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { seededRandom, until } from '@vmux/testing';
import type { ApiClient } from '../support/api-client';
import { describeOnStack } from '../support/describe-on-stack';

const MIB = 1024 * 1024;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const at = (path: string) => `path=${encodeURIComponent(path)}`;

/** Input, terminals and files through the gateway, the tunnel, the runner and the supervisor. */
describeOnStack()('the data plane', (stack) => {
  let api: ApiClient;
  let session: string;

  beforeAll(async () => {
    ({ api } = stack);
    ({ id: session } = await stack.create({ name: 'plane' }));
  }, 90_000);

  const issued = async (body: object) => {
    const reply = await api.post(`/v1/sessions/${session}/execs`, body);
    expect(reply).toMatchObject({ status: 201 });
    return reply.json.id as string;
  };
  const run = async (command: string) =>
    (await api.post(`/v1/sessions/${session}/execs?wait=60s`, { command })).json;
  const ended = async (exec: string) =>
    (await api.get(`/v1/sessions/${session}/execs/${exec}/wait?wait=60s`)).json;
  const outputOf = async (exec: string, stream: string) =>
    (await api.raw(`/v1/sessions/${session}/logs?exec=${exec}&stream=${stream}`)).bytes;
  const type = (exec: string, bytes: Uint8Array, query = '') =>
    api.call('POST', `/v1/sessions/${session}/execs/${exec}/stdin?${query}`, { body: bytes });
  const files = (rest: string) => `/v1/sessions/${session}/files${rest}`;
  const upload = (path: string, body: Uint8Array, query = '') =>
    api.call('PUT', files(`?${at(path)}${query}`), { body });

  describe('input', () => {
    it('reaches a running command at once, and its end ends the command', async () => {
      const exec = await issued({ command: 'cat', stdin: true });
      const first = await type(exec, Buffer.from('hello '));
      expect(first).toMatchObject({ status: 200, json: { next: 6 } });
      const { writer } = first.json;
      const last = await type(exec, Buffer.from('there'), `writer=${writer}&offset=6&eof=true`);
      expect(last).toMatchObject({ status: 200, json: { next: 12, eof: true } });
      expect(await ended(exec)).toMatchObject({ exit: { kind: 'exited', code: 0 } });
      expect((await outputOf(exec, 'stdout')).toString()).toBe('hello there');
    }, 60_000);

    it('is exact for 5 MiB of any bytes in random pieces, with pieces sent again on purpose', async () => {
      const random = seededRandom(20_261_118);
      const input = random.bytes(5 * MIB);
      const exec = await issued({ command: 'cat', stdin: true });
      const writer = Date.now() * 1000;
      let next = 0;
      let repeats = 0;
      while (next < input.length) {
        const from = random.integer(4) === 0 ? Math.max(0, next - random.integer(100_000)) : next;
        if (from < next) repeats += 1;
        const piece = input.subarray(from, next + 1 + random.integer(300_000));
        const reply = await type(exec, piece, `writer=${writer}&offset=${from}`);
        expect(reply).toMatchObject({ status: 200, json: { next: from + piece.length } });
        next = reply.json.next;
      }
      expect(repeats).toBeGreaterThan(2);
      const whole = await type(exec, input, `writer=${writer}&offset=0&eof=1`);
      expect(whole).toMatchObject({ status: 200, json: { next: input.length + 1 } });
      await ended(exec);
      const output = await outputOf(exec, 'stdout');
      expect(output.length).toBe(input.length);
      expect(sha256(output)).toBe(sha256(input));
    }, 120_000);

    it('is refused for what came before, for another owner, and for what takes none', async () => {
      const exec = await issued({ command: 'cat', stdin: true });
      const writer = Date.now() * 1000;
      expect(await type(exec, Buffer.from('abc'), `writer=${writer}`)).toMatchObject({
        status: 200,
      });
      expect(await type(exec, Buffer.from('x'), `writer=${writer}&offset=9`)).toMatchObject({
        status: 409,
        json: { code: 'input_gap', details: { expected: 3 } },
      });
      const howFar = await api.post(
        `/v1/sessions/${session}/execs/${exec}/stdin?writer=${writer}&offset=0`,
      );
      expect(howFar).toMatchObject({ status: 200, json: { next: 3 } });
      expect(await type(exec, Buffer.from('x'), 'offset=9')).toMatchObject({ status: 400 });
      const stranger = await api.post('/v1/api-keys', {
        name: 'stranger',
        owner: 'stranger',
        scopes: ['sessions:read', 'sessions:write'],
      });
      expect(stranger.status).toBe(201);
      const other = api.withKey(stranger.json.key);
      const path = `/v1/sessions/${session}/execs/${exec}/stdin`;
      expect(await other.call('POST', path, { body: Buffer.from('x') })).toMatchObject({
        status: 404,
        json: { code: 'session_not_found' },
      });
      expect(await other.get(files(`?${at('/etc/passwd')}`))).toMatchObject({ status: 404 });
      expect(await api.withKey(null).call('POST', path, { body: Buffer.from('x') })).toMatchObject({
        status: 401,
      });
      await type(exec, Buffer.alloc(0), `writer=${writer}&offset=3&eof=1`);
      await api.post(`/v1/sessions/${session}/execs/${exec}/cancel`);
      await ended(exec);
      expect(await type(exec, Buffer.from('late'))).toMatchObject({
        status: 409,
        json: { code: 'exec_ended' },
      });
      const deaf = await issued({ command: 'sleep 100' });
      expect(await type(deaf, Buffer.from('x'))).toMatchObject({
        status: 409,
        json: { code: 'no_stdin' },
      });
      await api.post(`/v1/sessions/${session}/execs/${deaf}/cancel`);
      expect(await type('e000000000000', Buffer.from('x'))).toMatchObject({
        status: 404,
        json: { code: 'exec_not_found' },
      });
    }, 60_000);

    it('waits for a reader that is slow, and is given up with its client', async () => {
      const exec = await issued({ command: 'sleep 1000', stdin: true });
      const gone = new AbortController();
      const writer = Date.now() * 1000;
      const path = `/v1/sessions/${session}/execs/${exec}/stdin?writer=${writer}`;
      const stuck = api
        .call('POST', path, { body: Buffer.alloc(MIB), signal: gone.signal })
        .catch((fault: Error) => fault.name);
      const howFar = () => api.post(`${path}&offset=0`);
      const full = await until(
        async () => {
          const { json } = await howFar();
          return json.next > 0 && json.next;
        },
        { timeoutMs: 20_000 },
      );
      expect(full).toBeLessThan(MIB);
      gone.abort();
      expect(await stuck).toBe('AbortError');
      expect((await howFar()).json.next).toBe(full);
      await api.post(`/v1/sessions/${session}/execs/${exec}/cancel`);
    }, 60_000);
  });

  describe('a terminal', () => {
    it('takes what is typed, a new size and Ctrl-C', async () => {
      const exec = await issued({ argv: ['/bin/sh'], pty: { cols: 80, rows: 24 } });
      const screen = async () => (await outputOf(exec, 'pty')).toString();
      const shows = (text: string | RegExp) =>
        until(async () => (await screen()).match(text), { timeoutMs: 20_000 });
      const writer = Date.now() * 1000;
      let offset = 0;
      const keys = async (text: string) => {
        const reply = await type(exec, Buffer.from(text), `writer=${writer}&offset=${offset}`);
        expect(reply).toMatchObject({ status: 200 });
        offset = reply.json.next;
      };
      await keys('echo $((6 * 7)); stty size\n');
      await shows(/42\r\n24 80\r\n/);
      const path = `/v1/sessions/${session}/execs/${exec}/resize`;
      expect(await api.post(path, { cols: 132, rows: 50 })).toMatchObject({ status: 200 });
      expect(await api.post(path, { cols: 0, rows: 50 })).toMatchObject({ status: 400 });
      await keys('stty size\n');
      await shows('50 132\r\n');
      await keys('sleep 1000 || echo interrupted\n');
      await shows(/interrupted\r\n/);
      await keys('\x03');
      await keys('echo still $((40 + 2))\n');
      await shows('still 42');
      await keys('exit 5\n');
      expect(await ended(exec)).toMatchObject({ exit: { kind: 'exited', code: 5 } });
      expect(await api.post(path, { cols: 80, rows: 24 })).toMatchObject({
        status: 409,
        json: { code: 'exec_ended' },
      });
    }, 90_000);
  });

  describe('files', () => {
    it('go up and come down byte for byte, 20 MiB, from any offset', async () => {
      const content = seededRandom(3).bytes(20 * MIB);
      const put = await upload('/workspace/deep/er/big.bin', content, '&parents=1&mode=600');
      expect(put).toMatchObject({ status: 200, json: { bytes: content.length } });
      const { output } = await run('sha256sum < /workspace/deep/er/big.bin');
      expect(output.stdout.text).toBe(`${sha256(content)}  -\n`);
      const down = await api.raw(files(`?${at('/workspace/deep/er/big.bin')}`));
      expect(down).toMatchObject({ status: 200 });
      expect(sha256(down.bytes)).toBe(sha256(content));
      expect(down.headers).toMatchObject({
        'content-type': 'application/octet-stream',
        'x-content-type-options': 'nosniff',
        'content-disposition': expect.stringMatching(/^attachment; filename="big.bin"/),
      });
      const part = await api.raw(
        files(`?${at('/workspace/deep/er/big.bin')}&offset=1000001&length=77`),
      );
      expect(part.bytes.equals(content.subarray(1_000_001, 1_000_078))).toBe(true);
    }, 120_000);

    it('are listed, looked at, made and removed', async () => {
      const made = await api.post(files('/mkdir'), { path: '/workspace/tree', mode: '700' });
      expect(made).toMatchObject({ status: 201 });
      await upload('/workspace/tree/naïve file', Buffer.from('text'));
      await upload('/workspace/tree/empty', Buffer.alloc(0));
      await run(
        'cd /workspace/tree && ln -s /etc/passwd link && mkdir sub && touch "$(printf "\\377")"',
      );
      const listing = await api.get(files(`/list?${at('/workspace/tree')}`));
      expect(listing.status).toBe(200);
      const entries = new Map(
        listing.json.entries.map((entry: { name: string }) => [entry.name, entry]),
      );
      expect([...entries.keys()].sort()).toEqual(
        ['empty', 'link', 'naïve file', 'sub', '\ufffd'].sort(),
      );
      expect(entries.get('naïve file')).toMatchObject({ type: 'file', size: 4, mode: '0644' });
      expect(entries.get('link')).toMatchObject({ type: 'link', linkTarget: '/etc/passwd' });
      expect(entries.get('\ufffd')).toMatchObject({ nameBase64: '/w==' });
      const stat = (path: string, more = '') => api.get(files(`/stat?${at(path)}${more}`));
      expect((await stat('/workspace/tree')).json).toMatchObject({
        type: 'directory',
        mode: '0700',
      });
      expect((await stat('/workspace/tree/link', '&follow=1')).json.type).toBe('file');
      const remove = (path: string, more = '') => api.call('DELETE', files(`?${at(path)}${more}`));
      expect(await remove('/workspace/tree')).toMatchObject({
        status: 409,
        json: { code: 'file_conflict' },
      });
      expect(await remove('/workspace/tree/empty')).toMatchObject({ status: 204 });
      expect(await remove('/workspace/tree/empty')).toMatchObject({ status: 404 });
      expect(await remove('/workspace/tree', '&recursive=true')).toMatchObject({ status: 204 });
      expect(await stat('/workspace/tree')).toMatchObject({
        status: 404,
        json: { code: 'file_not_found', details: { errno: 'ENOENT' } },
      });
      expect((await run('cat /etc/passwd')).exit.code).toBe(0);
    }, 60_000);

    it('travel as archives, and one that reaches outside its directory is refused', async () => {
      await run(
        'mkdir -p /workspace/from/a && echo one > /workspace/from/a/1 && ln -s 1 /workspace/from/a/2',
      );
      const archive = await api.raw(files(`/archive?${at('/workspace/from')}`));
      expect(archive.headers['content-type']).toBe('application/x-tar');
      const unpacked = await api.call('PUT', files(`/archive?${at('/workspace/to')}`), {
        body: archive.bytes,
      });
      expect(unpacked).toMatchObject({ status: 200 });
      const { output } = await run('cat /workspace/to/a/2');
      expect(output.stdout.text).toBe('one\n');
      await run(
        'cd /workspace && mkdir evil && cd evil && echo x > ../victim && tar -cPf ../evil.tar ../victim && rm ../victim',
      );
      const evil = await api.raw(files(`?${at('/workspace/evil.tar')}`));
      const refused = await api.call('PUT', files(`/archive?${at('/workspace/to')}`), {
        body: evil.bytes,
      });
      expect(refused).toMatchObject({ status: 422, json: { code: 'archive_unsafe' } });
      expect(await api.get(files(`/stat?${at('/workspace/victim')}`))).toMatchObject({
        status: 404,
      });
    }, 60_000);

    it('cannot be named outside the sandbox', async () => {
      const canary = join(stack.dataDir, 'api-key');
      const inside = [canary, `/proc/1/root${canary}`, `/workspace/../../../..${canary}`];
      for (const path of inside) {
        const { status, text } = await api.get(files(`?${at(path)}`));
        expect([400, 403, 404, 409, 422]).toContain(status);
        expect(text).not.toContain(api.key);
      }
      for (const path of ['workspace', '', '/a\0b', `/${'a'.repeat(5000)}`, `/${'é'.repeat(2100)}`])
        expect(await api.get(files(`?${at(path)}`))).toMatchObject({ status: 400 });
      expect(await api.get(files(''))).toMatchObject({ status: 400 });
      expect(await api.get(files(`?${at('/workspace')}`))).toMatchObject({
        status: 409,
        json: { code: 'file_conflict' },
      });
      expect(await upload('/nowhere/file', Buffer.from('x'))).toMatchObject({ status: 404 });
      expect(await upload('/proc/sysrq-trigger', Buffer.from('b'))).toMatchObject({
        status: expect.any(Number),
        json: { code: expect.stringMatching(/^file_/) },
      });
      const names = await api.post(files('/mkdir'), { path: '/workspace/x', extra: 1 });
      expect(names).toMatchObject({ status: 400 });
    }, 60_000);
  });

  describe('when a process dies', () => {
    /** Stops in the middle until it is told to go on. */
    const slowUpload = (path: string, first: Buffer) => {
      const call = httpRequest(`${api.url}${files(`?${at(path)}`)}`, {
        method: 'PUT',
        headers: {
          authorization: `Bearer ${api.key}`,
          'content-type': 'application/octet-stream',
        },
      });
      const answer = new Promise<number | string>((resolve) => {
        call.on('response', (response) => {
          response.resume();
          resolve(response.statusCode ?? 0);
        });
        call.on('error', (fault) => resolve(fault.message));
      });
      call.write(first);
      return { call, answer };
    };
    const temporaries = async () =>
      (await run('ls -A /workspace/killed')).output.stdout.text as string;

    it('tells the client of a runner that was killed in mid-upload, and the next try succeeds', async () => {
      await run('mkdir /workspace/killed && echo old > /workspace/killed/file');
      const content = seededRandom(4).bytes(3 * MIB);
      const { call, answer } = slowUpload('/workspace/killed/file', content.subarray(0, MIB));
      await until(async () => (await temporaries()) !== 'file\n', { timeoutMs: 20_000 });
      process.kill(stack.pidOf('runner-local'), 'SIGKILL');
      expect(await answer).toBe(502);
      call.destroy();
      const done = await until(
        async () => {
          const reply = await upload('/workspace/killed/file', content);
          return reply.status === 200 && reply;
        },
        { timeoutMs: 30_000, everyMs: 200 },
      );
      expect(done.json.bytes).toBe(content.length);
      const { output } = await run('sha256sum < /workspace/killed/file; ls -A /workspace/killed');
      expect(output.stdout.text).toBe(`${sha256(content)}  -\nfile\n`);
    }, 120_000);

    it('leaves the old file when the client goes in mid-upload', async () => {
      await run('echo old > /workspace/killed/kept');
      const { call } = slowUpload('/workspace/killed/kept', Buffer.alloc(MIB));
      await until(async () => (await temporaries()) !== 'file\nkept\n', { timeoutMs: 20_000 });
      call.destroy();
      await until(async () => (await temporaries()) === 'file\nkept\n', { timeoutMs: 20_000 });
      const { output } = await run('cat /workspace/killed/kept');
      expect(output.stdout.text).toBe('old\n');
    }, 60_000);

    it('takes input once across a gateway that was killed in between', async () => {
      const exec = await issued({ command: 'cat', stdin: true });
      const input = seededRandom(5).bytes(2 * MIB);
      const writer = Date.now() * 1000;
      const half = await type(exec, input.subarray(0, MIB), `writer=${writer}`);
      expect(half).toMatchObject({ status: 200 });
      const cut = type(exec, input, `writer=${writer}`).catch(() => null);
      process.kill(stack.pidOf('gateway'), 'SIGKILL');
      await cut;
      const all = await until(
        async () => {
          const reply = await type(exec, input, `writer=${writer}&offset=0&eof=1`);
          return reply.status === 200 && reply;
        },
        { timeoutMs: 30_000, everyMs: 200 },
      );
      expect(all.json.next).toBe(input.length + 1);
      await ended(exec);
      expect(sha256(await outputOf(exec, 'stdout'))).toBe(sha256(input));
    }, 90_000);
  });

  it('refuses a session that is suspended or stopped, and says what to do', async () => {
    const becomes = (status: string) =>
      until(async () => (await api.get(`/v1/sessions/${session}`)).json.status === status, {
        timeoutMs: 30_000,
      });
    await becomes('running');
    expect(await api.post(`/v1/sessions/${session}/suspend`)).toMatchObject({ status: 202 });
    await becomes('suspended');
    expect(await api.get(files(`/stat?${at('/workspace')}`))).toMatchObject({
      status: 409,
      json: { code: 'not_running', hint: expect.stringContaining('/resume') },
    });
    await api.post(`/v1/sessions/${session}/resume`);
    await becomes('running');
    expect(await api.get(files(`/stat?${at('/workspace')}`))).toMatchObject({ status: 200 });
    await api.post(`/v1/sessions/${session}/stop`);
    await becomes('stopped');
    expect(await api.get(files(`?${at('/workspace')}`))).toMatchObject({
      status: 409,
      json: { code: 'not_running', details: { status: 'stopped' } },
    });
  }, 60_000);
});
