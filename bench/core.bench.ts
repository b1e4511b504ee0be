/**
 * The core under load: 200 sessions at once, each with an exec that writes and a follower that reads, over
 * one gateway, one session service and the embedded event store. The runner is scripted, but for `yes` in a
 * sandbox of namespaces beside another one. Every byte that a follower gets is checked.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import type { ApiClient } from '../test/support/api-client';
import type { FakeExec } from '../test/support/fake-exec';
import type { FakeRunner } from '../test/support/fake-runner';
import { startGateway, startRunner, startService, startStack } from '../test/support/stack';
import { beside, ratioAt } from './flood';
import { besideYes } from './flood-ns';
import { longHistory } from './long-history';
import { figure, printJson, printTable, quantile, wantsJson } from './report';

const SESSIONS = 200;
const BYTES_EACH = 128 * 1024;
const FRAME_BYTES = 16 * 1024;
const COMMANDS = 300;
const RECONNECTS = 150;
const LONG_LOG_BYTES = 8 * 1024 * 1024;
const MIB = 1024 * 1024;

const random = seededRandom(1);

async function main(): Promise<void> {
  const stack = await startStack();
  const runner = startRunner(stack);
  const service = await startService(stack);
  const limits = {
    VMUX_LIVE_SESSIONS: '100000',
    VMUX_REQUESTS_PER_SECOND: '1000000',
    VMUX_REQUEST_BURST: '1000000',
    VMUX_MAX_FOLLOWERS: '10000',
    VMUX_LOG_LEVEL: 'warn',
  };
  const gateway = await startGateway(stack, 'gateway', limits);
  const { api } = gateway;
  const rssMiB = (pid: number) =>
    Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

  const calm = await Promise.all(Array.from({ length: 10 }, () => session(api, 'quiet')));
  const quiet = await commands(api, calm, (count) => count < COMMANDS);
  const [flooded, other] = calm;
  if (!flooded || !other) throw new Error('no sessions');
  const flood = await beside(api, runner, { flooding: flooded, other });
  const reconnects = await reconnecting(api, runner);
  const load = await flooding(api, runner, gateway.url);
  const long = await longHistory(stack, api, () => startGateway(stack, 'gateway-long', limits));
  const memory = { gateway: rssMiB(gateway.process.pid), service: rssMiB(service.pid) };
  await releaseAll();
  // A sandbox of namespaces needs root.
  const yes = process.getuid?.() === 0 ? await besideYes() : null;

  if (!wantsJson()) {
    console.log(`${cpus().length} cores, load ${loadavg().map(figure).join(' ')}`);
    printTable(
      ['', 'p50', 'p99'],
      [
        ['command, quiet (ms)', ...figuresOf(quiet)],
        [`command, ${SESSIONS} sessions writing (ms)`, ...figuresOf(load.commandMs)],
        ['exec, calm (ms)', ...figuresOf(flood.calmMs)],
        [
          `exec, another session writing ${figure(flood.floodMiBps)} MiB/s (ms)`,
          ...figuresOf(flood.floodedMs),
        ],
        ...(yes
          ? [
              ['exec in a sandbox, calm (ms)', ...figuresOf(yes.calmMs)],
              [
                `exec in a sandbox, yes in another one, ${figure(yes.floodMiBps)} MiB/s (ms)`,
                ...figuresOf(yes.floodedMs),
              ],
            ]
          : []),
        ['reconnect to first byte (ms)', ...figuresOf(reconnects)],
        [
          `reconnect to first byte, ${figure(long.events)} events (ms)`,
          ...figuresOf(long.reconnectMs),
        ],
      ],
    );
    console.log(
      `\nfirst read of ${figure(long.events)} events by a gateway that starts: ` +
        `${figure(long.foldMs)} ms from the first event, ${figure(long.firstReadMs)} ms once kept`,
    );
    console.log(
      `\n${SESSIONS} sessions with a follower each: ${figure(load.ingestedMiBps)} MiB/s durable, ` +
        `${figure(load.deliveredMiBps)} MiB/s delivered, ${load.lost} bytes lost; ` +
        `peak memory: gateway ${figure(memory.gateway)} MiB, session service ${figure(memory.service)} MiB`,
    );
  }
  printJson({
    command_ms_p50: quantile(quiet, 0.5),
    command_ms_p99: quantile(quiet, 0.99),
    loaded_command_ms_p50: quantile(load.commandMs, 0.5),
    loaded_command_ms_p99: quantile(load.commandMs, 0.99),
    log_mb_per_s: load.ingestedMiBps,
    delivered_mb_per_s: load.deliveredMiBps,
    flood_exec_p50_ratio: ratioAt(flood, 0.5),
    flood_exec_p99_ratio: ratioAt(flood, 0.99),
    flood_mb_per_s: flood.floodMiBps,
    ...(yes && {
      yes_exec_p50_ratio: ratioAt(yes, 0.5),
      yes_exec_p99_ratio: ratioAt(yes, 0.99),
      yes_mb_per_s: yes.floodMiBps,
    }),
    reconnect_ms_p50: quantile(reconnects, 0.5),
    reconnect_ms_p99: quantile(reconnects, 0.99),
    long_reconnect_ms_p50: quantile(long.reconnectMs, 0.5),
    long_reconnect_ms_p99: quantile(long.reconnectMs, 0.99),
    long_fold_ms: long.foldMs,
    long_first_read_ms: long.firstReadMs,
    lost_bytes: load.lost,
    gateway_mib: memory.gateway,
    session_service_mib: memory.service,
  });
  if (load.lost > 0) throw new Error(`${load.lost} bytes were lost`);
}

const figuresOf = (values: readonly number[]): string[] =>
  [0.5, 0.99].map((fraction) => figure(quantile(values, fraction)));

async function session(api: ApiClient, name: string): Promise<string> {
  const { json, status, text } = await api.post('/v1/sessions', { name });
  if (status !== 201) throw new Error(`no session: ${text}`);
  await until(async () => (await api.get(`/v1/sessions/${json.id}`)).json.status === 'running', {
    timeoutMs: 60_000,
    everyMs: 100,
  });
  return json.id;
}

/** Asked and durably answered, one after the other, of one session after the other. */
async function commands(
  api: ApiClient,
  ids: readonly string[],
  more: (count: number) => boolean,
): Promise<number[]> {
  const times: number[] = [];
  for (let at = 0; more(at); at += 1) {
    const id = ids[at % ids.length];
    const started = performance.now();
    let reply = await api.post(`/v1/sessions/${id}/execs`, { command: 'true' });
    // Not admitted: a client tries again, and waits for as long.
    for (let left = 100; reply.status === 503 && left > 0; left -= 1) {
      await sleep(100);
      reply = await api.post(`/v1/sessions/${id}/execs`, { command: 'true' });
    }
    times.push(performance.now() - started);
    if (reply.status !== 201) throw new Error(reply.text);
  }
  return times;
}

/** From the request with a Last-Event-ID, anywhere in a long log, to the first event. */
async function reconnecting(api: ApiClient, runner: FakeRunner): Promise<number[]> {
  const whole = random.bytes(LONG_LOG_BYTES);
  runner.scripts.set('long', (exec) => written(exec, whole));
  const id = await session(api, 'long');
  const exec = await api.post(`/v1/sessions/${id}/execs?wait=120s&maxBytes=1`, { command: 'long' });
  const path = `/v1/sessions/${id}/logs?exec=${exec.json.id}&stream=stdout&follow=1`;
  const times: number[] = [];
  for (let at = 0; at < RECONNECTS; at += 1) {
    const offset = random.integer(whole.length);
    const started = performance.now();
    // The revision is a guess that mostly does not fit: the offset is looked for.
    const headers = { 'last-event-id': `${offset}@${random.integer(1000)}` };
    const events = api.events(path, { headers });
    const first = await events.next();
    times.push(performance.now() - started);
    const got = Buffer.from(first.value?.data.b64 ?? '', 'base64');
    if (!got.equals(whole.subarray(offset, offset + got.length)))
      throw new Error('the bytes at the offset are others');
    await events.return(undefined);
  }
  return times;
}

async function flooding(api: ApiClient, runner: FakeRunner, url: string) {
  let begin: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const sums = new Map<string, string>();
  runner.scripts.set('flood', async (exec) => {
    const whole = random.bytes(BYTES_EACH);
    sums.set(exec.id, sumOf(whole));
    await begun;
    await written(exec, whole);
  });
  const ids: string[] = [];
  for (let at = 0; at < SESSIONS; at += 20)
    ids.push(...(await Promise.all(Array.from({ length: 20 }, () => session(api, 'flood')))));
  const execs = await Promise.all(
    ids.map(async (id) => {
      const { json } = await api.post(`/v1/sessions/${id}/execs`, { command: 'flood' });
      return { id, execId: json.id as string };
    }),
  );
  await until(() => sums.size === SESSIONS, { timeoutMs: 60_000 });
  const following = execs.map(({ id, execId }) => followed(api, id, execId));
  await until(async () => (await openStreams(url)) === SESSIONS, { timeoutMs: 60_000 });

  const started = performance.now();
  let writing = true;
  begin();
  const lately = commands(api, ids, () => writing);
  lately.catch(() => undefined);
  await until(() => execs.every(({ execId }) => runner.execs.get(execId)?.hasEnded), {
    timeoutMs: 300_000,
    everyMs: 20,
  });
  writing = false;
  const ingestedMs = performance.now() - started;
  const pieces = await Promise.all(following);
  const deliveredMs = performance.now() - started;
  const total = (SESSIONS * BYTES_EACH) / MIB;
  const lost = pieces.reduce(
    (sum, bytes, at) => sum + (sumOf(bytes) === sums.get(execs[at]?.execId ?? '') ? 0 : BYTES_EACH),
    0,
  );
  return {
    commandMs: await lately,
    ingestedMiBps: (total / ingestedMs) * 1000,
    deliveredMiBps: (total / deliveredMs) * 1000,
    lost,
  };
}

async function openStreams(url: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return Number(/^vmux_gateway_followers (\d+)/m.exec(metrics)?.[1] ?? 0);
}

async function followed(api: ApiClient, id: string, execId: string): Promise<Buffer> {
  const pieces: Buffer[] = [];
  const path = `/v1/sessions/${id}/logs?exec=${execId}&stream=stdout&follow=1`;
  for await (const { event, data } of api.events(path))
    if (event === 'message') pieces.push(Buffer.from(data.b64, 'base64'));
  return Buffer.concat(pieces);
}

async function written(exec: FakeExec, whole: Buffer): Promise<void> {
  for (let from = 0; from < whole.length; from += FRAME_BYTES) {
    const part = whole.subarray(from, from + FRAME_BYTES);
    const reply = await exec.send([exec.chunk('stdout', from, part)]);
    if (!reply.ok || reply.refused) throw new Error(JSON.stringify(reply));
  }
  exec.written.stdout = whole.length;
}

const sumOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

main().catch(async (fault) => {
  console.error(fault);
  await releaseAll();
  process.exit(1);
});
