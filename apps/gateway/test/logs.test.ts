import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import type { SseMessage } from '../../../test/support/api-client';
import type { FakeExec } from '../../../test/support/fake-exec';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

let stack: Stack;
let gateway: Gateway;
let runner: FakeRunner;
let scripts = 0;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack, 'gateway-1', { VMUX_KEEP_ALIVE_MS: '50' });
}, 60_000);
afterAll(releaseAll);

/** A session with one exec that does what it is told, when it is told. */
async function running(name: string) {
  const line = `script ${scripts++}`;
  let give: (exec: FakeExec) => void = () => undefined;
  const started = new Promise<FakeExec>((resolve) => {
    give = resolve;
  });
  let finish: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  runner.scripts.set(line, async (exec) => {
    give(exec);
    await finished;
  });
  const { api } = gateway;
  const { id } = (await api.post('/v1/sessions', { name })).json;
  const { json } = await api.post(`/v1/sessions/${id}/execs`, { command: line });
  const exec = await started;
  return { id: id as string, execId: json.id as string, exec, finish };
}

const textOf = (messages: readonly SseMessage[]): string =>
  Buffer.concat(
    messages
      .filter(({ event }) => event === 'message')
      .map(({ data }) => Buffer.from(data.b64, 'base64')),
  ).toString();

describe('a log over HTTP', () => {
  it('is resumed by Last-Event-ID exactly where the reader stopped', async () => {
    const { id, execId, exec, finish } = await running('resumed');
    const random = seededRandom(3);
    const written: string[] = [];
    for (let round = 0; round < 100; round += 1) {
      const text = random.bytes(20).toString('hex');
      written.push(text);
      await exec.write(round % 3 === 0 ? 'stderr' : 'stdout', text);
    }
    finish();
    for (const path of [
      `/v1/sessions/${id}/logs?follow=1&exec=${execId}`,
      `/v1/sessions/${id}/logs?exec=${execId}`,
      `/v1/sessions/${id}/logs`,
    ]) {
      const seen: SseMessage[] = [];
      let last = null as string | null;
      for (let done = false; !done; ) {
        const headers: Record<string, string> = last === null ? {} : { 'last-event-id': last };
        const stopAfter = 1 + random.integer(20);
        let now = 0;
        done = true;
        for await (const message of gateway.api.events(path, { headers })) {
          if (message.event === 'end') break;
          seen.push(message);
          last = message.id;
          now += 1;
          if (now < stopAfter) continue;
          done = false;
          break;
        }
      }
      expect(textOf(seen)).toBe(written.join(''));
    }
  });

  it('takes an id that it did not give for no id', async () => {
    const { id, exec, finish } = await running('foreign-id');
    await exec.write('stdout', 'abc');
    finish();
    for (const header of ['nonsense', '1', '-1@2', '1@x', '9'.repeat(40)]) {
      const seen: SseMessage[] = [];
      for await (const message of gateway.api.events(`/v1/sessions/${id}/logs`, {
        headers: { 'last-event-id': header },
      }))
        seen.push(message);
      expect(textOf(seen)).toBe('abc');
    }
  });

  it('tells a gap: as an event, and raw by ending there and naming where to go on', async () => {
    const { id, execId, exec, finish } = await running('gap');
    await exec.write('stdout', 'before');
    await exec.lose('stdout', 100);
    await exec.write('stdout', 'after');
    finish();
    const seen: SseMessage[] = [];
    const path = `/v1/sessions/${id}/logs?exec=${execId}&stream=stdout`;
    for await (const message of gateway.api.events(`${path}&follow=true`)) seen.push(message);
    expect(seen).toMatchObject([
      { event: 'message', data: { offset: 0 } },
      { event: 'gap', data: { from: 6, to: 106, reason: 'disk full' } },
      { event: 'message', data: { offset: 106 } },
      { event: 'end', data: { next: 111, over: true } },
    ]);
    const first = await gateway.api.raw(path);
    expect(first.bytes.toString()).toBe('before');
    expect(first.trailers).toEqual({
      'vmux-next-offset': '106',
      'vmux-log-end': 'gap',
      'vmux-gap': '6-106',
    });
    const at = await gateway.api.raw(`${path}&offset=6`);
    expect(at.bytes).toHaveLength(0);
    expect(at.headers).toMatchObject({ 'vmux-next-offset': '106', 'vmux-log-end': 'gap' });
    const after = await gateway.api.raw(`${path}&offset=106`);
    expect(after.bytes.toString()).toBe('after');
    expect(after.trailers).toEqual({ 'vmux-next-offset': '111', 'vmux-log-end': 'end' });
  });

  it('answers 416 with the size for an offset past the end, unless it is followed', async () => {
    const { id, execId, exec, finish } = await running('past');
    await exec.write('stdout', '0123');
    const path = `/v1/sessions/${id}/logs?exec=${execId}&stream=stdout&offset=6`;
    const { status, json } = await gateway.api.get(path);
    expect([status, json.code, json.details]).toEqual([416, 'offset_past_end', { size: 4 }]);
    const waiting = gateway.api.raw(`${path}&follow=1`);
    await exec.write('stdout', '456789');
    finish();
    expect((await waiting).bytes.toString()).toBe('6789');
  });

  it('stops at the limit and names the next offset', async () => {
    const { id, exec, finish } = await running('limited');
    await exec.write('stdout', 'x'.repeat(100_000));
    finish();
    const { bytes, trailers } = await gateway.api.raw(
      `/v1/sessions/${id}/logs?limit=70000&offset=5`,
    );
    expect(bytes).toHaveLength(70_000);
    expect(trailers).toMatchObject({ 'vmux-next-offset': '70005', 'vmux-log-end': 'limit' });
  });

  it('is kept alive while a command is silent', async () => {
    const { id, execId, exec, finish } = await running('silent');
    const socket = connect(gateway.port, '127.0.0.1');
    socket.write(
      `GET /v1/sessions/${id}/logs?exec=${execId}&follow=1 HTTP/1.1\r\nHost: localhost\r\n` +
        `Authorization: Bearer ${gateway.api.key}\r\nAccept: text/event-stream\r\n` +
        'Connection: close\r\n\r\n',
    );
    let heard = '';
    socket.on('data', (data) => {
      heard += data;
    });
    await until(() => heard.split(': keep-alive').length > 3);
    await exec.write('stdout', 'at last');
    finish();
    await once(socket, 'close');
    expect(heard).toContain(Buffer.from('at last').toString('base64'));
    expect(heard).toContain('event: end');
  });

  it('given to a reader that does not read costs bounded memory and slows nobody', async () => {
    const { id, exec, finish } = await running('slow');
    const random = seededRandom(5);
    const whole = random.bytes(32 * 2 ** 20);
    const rss = () => {
      const status = readFileSync(`/proc/${gateway.process.pid}/status`, 'utf8');
      return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
    };
    const stuck = connect(gateway.port, '127.0.0.1');
    stuck.write(
      `GET /v1/sessions/${id}/logs?follow=1 HTTP/1.1\r\nHost: localhost\r\n` +
        `Authorization: Bearer ${gateway.api.key}\r\n\r\n`,
    );
    await once(stuck, 'readable');
    const before = rss();
    for (let at = 0; at < whole.length; at += 2 ** 19)
      await exec.send(
        Array.from({ length: 8 }, (_, part) => {
          const from = at + part * 2 ** 16;
          return exec.chunk('stdout', from, whole.subarray(from, from + 2 ** 16));
        }),
      );
    exec.written.stdout = whole.length;
    finish();
    const grown = rss() - before;
    const { bytes } = await gateway.api.raw(
      `/v1/sessions/${id}/logs?offset=${whole.length - 1000}`,
    );
    expect(bytes.equals(whole.subarray(-1000))).toBe(true);
    // Far less than what it does not read.
    expect(grown).toBeLessThan(24);
    // And when it reads at last, it gets every byte.
    const pieces: Buffer[] = [];
    stuck.on('data', (piece: Buffer) => pieces.push(piece));
    await gateway.api.post(`/v1/sessions/${id}/stop`);
    await until(() => Buffer.concat(pieces.slice(-3)).includes('vmux-log-end: end'), {
      timeoutMs: 20_000,
    });
    expect(unchunked(Buffer.concat(pieces)).equals(whole)).toBe(true);
    stuck.destroy();
  }, 60_000);
});

describe('the answer to an exec', () => {
  it('has text as text, other bytes as base64, and says what it leaves out', async () => {
    const { api } = gateway;
    const { id } = (await api.post('/v1/sessions', { name: 'answers' })).json;
    runner.scripts.set('mixed', async (exec) => {
      await exec.write('stdout', 'héllo wörld');
      await exec.write('stderr', Buffer.from([0xff, 0xfe, 0x00]));
      await exec.exit(7);
    });
    const path = `/v1/sessions/${id}/execs`;
    const whole = await api.post(`${path}?wait=20s`, { command: 'mixed' });
    expect(whole.json).toMatchObject({
      exit: { kind: 'exited', code: 7 },
      output: {
        stdout: { text: 'héllo wörld', encoding: 'utf8', truncated: false, next: 13, size: 13 },
        stderr: { text: '//4A', encoding: 'base64', truncated: false, next: 3, size: 3 },
      },
    });
    const cut = await api.get(`${path}/${whole.json.id}/wait?maxBytes=2`);
    expect(cut.json.output).toMatchObject({
      stdout: { text: 'h', truncated: true, next: 1, size: 13 },
      stderr: { truncated: true, next: 2 },
    });
    const rest = await api.raw(
      `/v1/sessions/${id}/logs?exec=${whole.json.id}&stream=stdout&offset=1`,
    );
    expect(rest.bytes.toString()).toBe('éllo wörld');
  });

  it('comes with what there is when the time is up', async () => {
    const { id, execId, exec, finish } = await running('not-yet');
    await exec.write('stdout', 'so far');
    const path = `/v1/sessions/${id}/execs/${execId}/wait?wait=100ms`;
    const { status, json } = await gateway.api.get(path);
    expect(status).toBe(202);
    expect(json).toMatchObject({ exit: null, output: { stdout: { text: 'so far', size: null } } });
    finish();
    const ended = await gateway.api.get(`/v1/sessions/${id}/execs/${execId}/wait?wait=20s`);
    expect([ended.status, ended.json.exit.code]).toEqual([200, 0]);
  });
});

describe('the history over HTTP', () => {
  it('is followed from any revision and resumed by Last-Event-ID', async () => {
    const { id, finish } = await running('facts');
    finish();
    const path = `/v1/sessions/${id}/events`;
    await until(async () => (await gateway.api.get(path)).text.includes('ExecExited'));
    const all = (await gateway.api.get(path)).text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(all.map(({ revision }) => revision)).toEqual(all.map((_, index) => index));
    const resumed: SseMessage[] = [];
    const options = { headers: { 'last-event-id': '1' } };
    for await (const message of gateway.api.events(path, options)) resumed.push(message);
    expect(resumed.filter(({ event }) => event === 'fact').map(({ data }) => data)).toEqual(
      all.slice(2),
    );
    const past = await gateway.api.get(`${path}?from=100`);
    expect([past.status, past.json.code]).toEqual([416, 'revision_past_end']);
    const next = gateway.api.events(`${path}?from=${all.length}&follow=1`);
    const arrived = next.next();
    await gateway.api.post(`/v1/sessions/${id}/stop`);
    expect((await arrived).value).toMatchObject({ data: { type: 'StopRequested' } });
    await next.return(undefined);
  });
});

/** The body of an answer that was sent in chunks. */
function unchunked(answer: Buffer): Buffer {
  const pieces: Buffer[] = [];
  let at = answer.indexOf('\r\n\r\n') + 4;
  // The head may have been read before: then the body is all there is.
  if (!answer.subarray(0, 5).equals(Buffer.from('HTTP/'))) at = 0;
  for (;;) {
    const end = answer.indexOf('\r\n', at);
    const length = Number.parseInt(answer.subarray(at, end).toString(), 16);
    if (!length) return Buffer.concat(pieces);
    pieces.push(answer.subarray(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}
