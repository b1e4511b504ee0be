import { setTimeout as sleep } from 'node:timers/promises';
import { sessionStream } from '@vmux/events';
import { releaseAll, type SeededRandom, seededRandom, until } from '@vmux/testing';
import { type Mischief, sendBadly } from '../support/adversary';
import type { ApiClient } from '../support/api-client';
import type { FakeExec } from '../support/fake-exec';
import type { FakeRunner } from '../support/fake-runner';
import {
  type Gateway,
  type ServiceProcess,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../support/stack';

const SEED = Number(process.env.VMUX_E2E_SEED ?? 20_261_118);
const MIB = 2 ** 20;

let stack: Stack;
let runner: FakeRunner;
let gateways: Gateway[];
let services: ServiceProcess[];
let random: SeededRandom;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  services = await Promise.all([startService(stack, 'one'), startService(stack, 'two')]);
  gateways = await Promise.all([
    startGateway(stack, 'gateway-1'),
    startGateway(stack, 'gateway-2'),
  ]);
  random = seededRandom(SEED);
}, 60_000);
afterAll(releaseAll);

const api = (): ApiClient => random.pick(gateways).api;

/** As a client does: the same request with the same key until there is an answer. */
async function insist(path: string, body: unknown, key: string) {
  return until(
    async () => {
      const reply = await api().post(path, body, { 'idempotency-key': key });
      if (reply.status >= 500) return undefined;
      expect(reply.status).toBe(201);
      return reply.json;
    },
    { timeoutMs: 30_000, everyMs: 50 },
  );
}

/** Follows raw, and goes on from the last byte elsewhere whenever the connection is cut. */
async function followRaw(path: string, size: number): Promise<{ bytes: Buffer; cuts: number }> {
  const pieces: Buffer[] = [];
  let have = 0;
  let cuts = -1;
  while (have < size) {
    cuts += 1;
    try {
      const gateway = api();
      const response = await fetch(`${gateway.url}${path}&offset=${have}&follow=1`, {
        headers: { authorization: `Bearer ${gateway.key}` },
      });
      if (response.status !== 200 || !response.body) throw new Error(`${response.status}`);
      for await (const piece of response.body) {
        pieces.push(Buffer.from(piece));
        have += piece.length;
      }
    } catch {
      await sleep(50);
    }
  }
  return { bytes: Buffer.concat(pieces), cuts };
}

/** Follows events, and resumes with the last id wherever it was. */
async function followEvents(path: string, size: number): Promise<{ bytes: Buffer; cuts: number }> {
  const pieces: Buffer[] = [];
  let have = 0;
  let cuts = -1;
  let last = null as string | null;
  while (have < size) {
    cuts += 1;
    try {
      const headers: Record<string, string> = last === null ? {} : { 'last-event-id': last };
      for await (const { event, id, data } of api().events(`${path}&follow=1`, { headers })) {
        if (event !== 'message') break;
        const piece = Buffer.from(data.b64, 'base64');
        if (data.offset !== have) throw new Error(`offset ${data.offset}, not ${have}`);
        pieces.push(piece);
        have += piece.length;
        last = id;
      }
    } catch {
      await sleep(50);
    }
  }
  return { bytes: Buffer.concat(pieces), cuts };
}

async function typesOf(id: string): Promise<string[]> {
  const types: string[] = [];
  for await (const { type } of stack.store.read(sessionStream(id))) types.push(type);
  return types;
}

describe(`two gateways and two session services, killed in the middle (seed ${SEED})`, () => {
  it('give back 10 MiB exactly, however they came and however they are read', async () => {
    const whole = { stdout: random.bytes(7 * MIB), stderr: random.bytes(3 * MIB) };
    let mischief: Mischief | undefined;
    runner.scripts.set('flood', async (exec) => {
      mischief = await sendBadly(exec, whole, random);
    });
    const { id } = await insist('/v1/sessions', { name: 'flood' }, 'create');
    const exec = await insist(`/v1/sessions/${id}/execs`, { command: 'flood' }, 'exec');
    const logs = `/v1/sessions/${id}/logs?exec=${exec.id}`;
    const following = Promise.all([
      followRaw(`${logs}&stream=stdout`, whole.stdout.length),
      followEvents(`${logs}&stream=stderr`, whole.stderr.length),
      followEvents(`${logs}&stream=stdout`, whole.stdout.length),
    ]);

    const writes = () => runner.execs.get(exec.id)?.hasEnded === false;
    await until(writes, { timeoutMs: 20_000 });
    for (const round of [0, 1]) {
      await sleep(300);
      await services[round]?.kill('SIGKILL');
      await gateways[round]?.process.kill('SIGKILL');
      const [gateway, service] = await Promise.all([
        startGateway(stack, `gateway-${round + 1}`),
        startService(stack, `again-${round}`),
      ]);
      gateways[round] = gateway;
      services[round] = service;
    }

    const [raw, err, out] = await following;
    expect(raw.bytes.equals(whole.stdout)).toBe(true);
    expect(out.bytes.equals(whole.stdout)).toBe(true);
    expect(err.bytes.equals(whole.stderr)).toBe(true);
    const ended = await api().get(`/v1/sessions/${id}/execs/${exec.id}/wait?wait=30s&maxBytes=10`);
    expect(ended.json).toMatchObject({
      status: 'exited',
      exit: { kind: 'exited', code: 0 },
      sizes: { stdout: whole.stdout.length, stderr: whole.stderr.length },
    });

    // Something of everything did happen, or this shows nothing.
    expect(raw.cuts + err.cuts + out.cuts).toBeGreaterThan(0);
    expect(mischief?.redelivered).toBeGreaterThan(0);
    expect(mischief?.reordered).toBeGreaterThan(0);
    expect(mischief?.refused.output_gap).toBeGreaterThan(0);
    expect(mischief?.refused.stale_epoch).toBeGreaterThan(0);

    for (const gateway of gateways) {
      const read = await gateway.api.raw(`${logs}&stream=stderr`);
      expect(read.bytes.equals(whole.stderr)).toBe(true);
      expect(read.trailers['vmux-log-end']).toBe('end');
    }
    const merged = (await api().raw(`/v1/sessions/${id}/logs`)).bytes;
    expect(merged).toHaveLength(10 * MIB);
    for (let round = 0; round < 40; round += 1) {
      const stream = random.pick(['stdout', 'stderr'] as const);
      const offset = random.integer(whole[stream].length);
      const limit = 1 + random.integer(200_000);
      const part = await api().raw(`${logs}&stream=${stream}&offset=${offset}&limit=${limit}`);
      expect(part.bytes.equals(whole[stream].subarray(offset, offset + limit))).toBe(true);
      const from = random.integer(merged.length);
      const middle = await api().raw(`/v1/sessions/${id}/logs?offset=${from}&limit=${limit}`);
      expect(middle.bytes.equals(merged.subarray(from, from + limit))).toBe(true);
      const pieces: Buffer[] = [];
      const path = `/v1/sessions/${id}/logs?offset=${from}&limit=${limit}`;
      for await (const { event, data } of api().events(path))
        if (event === 'message') pieces.push(Buffer.from(data.b64, 'base64'));
      expect(Buffer.concat(pieces).equals(merged.subarray(from, from + limit))).toBe(true);
    }
    const types = await typesOf(id);
    for (const once of ['SessionCreated', 'SandboxStarted', 'ExecIssued', 'ExecExited'])
      expect([once, types.filter((type) => type === once).length]).toEqual([once, 1]);
    // The same requests still find the same answers.
    expect((await insist('/v1/sessions', { name: 'flood' }, 'create')).id).toBe(id);
    expect((await insist(`/v1/sessions/${id}/execs`, { command: 'flood' }, 'exec')).id).toBe(
      exec.id,
    );
  }, 180_000);

  it('take nothing from a sandbox of an epoch that is over', async () => {
    let hold: (exec: FakeExec) => void = () => undefined;
    const held = new Promise<FakeExec>((resolve) => {
      hold = resolve;
    });
    let letGo: () => void = () => undefined;
    const released = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    runner.scripts.set('doomed', async (exec) => {
      await exec.write('stdout', 'kept');
      hold(exec);
      await released;
    });
    const { id } = await insist('/v1/sessions', { name: 'epochs' }, 'create-epochs');
    const { id: doomed } = await insist(
      `/v1/sessions/${id}/execs`,
      { command: 'doomed' },
      'doomed',
    );
    const exec = await held;
    const evidence = { kind: 'probe', message: 'its disk is gone' } as const;
    await runner.report(exec.sandbox, 'SandboxLost', { evidence });
    const lost = await api().get(`/v1/sessions/${id}/execs/${doomed}/wait?wait=20s`);
    expect(lost.json).toMatchObject({
      status: 'unknown',
      exit: { kind: 'unknown', reason: 'sandbox_lost' },
      output: { stdout: { text: 'kept' } },
    });
    const after = await insist(`/v1/sessions/${id}/execs`, { command: 'second life' }, 'second');
    const ran = await api().get(`/v1/sessions/${id}/execs/${after.id}/wait?wait=20s`);
    expect(ran.json).toMatchObject({ epoch: 2, output: { stdout: { text: 'second life' } } });
    const late = await exec.send([exec.chunk('stdout', 4, Buffer.from(' and lost'))]);
    expect(late).toMatchObject({ ok: false, refused: { code: 'stale_epoch' } });
    letGo();
    await until(() => exec.hasEnded);
    const { bytes } = await api().raw(
      `/v1/sessions/${id}/logs?exec=${doomed}&stream=stdout&follow=1`,
    );
    expect(bytes.toString()).toBe('kept');
    expect((await api().raw(`/v1/sessions/${id}/logs`)).bytes.toString()).toBe('keptsecond life');
  }, 60_000);
});
