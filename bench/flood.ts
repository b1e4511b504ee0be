import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_CHUNK_BYTES, MAX_OUTPUT_BYTES } from '@vmux/events';
import type { ApiClient } from '../test/support/api-client';
import type { FakeExec } from '../test/support/fake-exec';
import type { FakeRunner } from '../test/support/fake-runner';
import { quantile } from './report';

const ROUNDS = 8;
const EXECS_PER_ROUND = 25;

export interface FloodFigures {
  readonly calmMs: readonly number[];
  readonly floodedMs: readonly number[];
  readonly floodMiBps: number;
}

/** Output without end, while it flows. */
export interface Flood {
  flow(): Promise<void> | void;
  /** Resolves once nothing of it is on its way any more. */
  hold(): Promise<void>;
  end(): Promise<void> | void;
  readonly mibPerSecond: number;
}

/** With a runner that is scripted: no sandbox, no CPU of its own. */
export async function beside(
  api: ApiClient,
  runner: FakeRunner,
  sessions: { readonly flooding: string; readonly other: string },
): Promise<FloodFigures> {
  const flood = new ScriptedFlood();
  runner.scripts.set('yes', (exec) => flood.run(exec));
  const { status, text } = await api.post(`/v1/sessions/${sessions.flooding}/execs`, {
    command: 'yes',
  });
  if (status !== 201) throw new Error(text);
  return execsBeside(api, sessions.other, flood);
}

/**
 * Execs of one session, from the request to the exit, with and without another session that writes as fast
 * as its frames are taken. In turns, so that what else the machine does falls on both.
 */
export async function execsBeside(
  api: ApiClient,
  sessionId: string,
  flood: Flood,
): Promise<FloodFigures> {
  const calmMs: number[] = [];
  const floodedMs: number[] = [];
  try {
    await execs(api, sessionId, EXECS_PER_ROUND);
    for (let round = 0; round < ROUNDS; round += 1) {
      calmMs.push(...(await execs(api, sessionId, EXECS_PER_ROUND)));
      await flood.flow();
      floodedMs.push(...(await execs(api, sessionId, EXECS_PER_ROUND)));
      await flood.hold();
    }
  } finally {
    await flood.end();
  }
  return { calmMs, floodedMs, floodMiBps: flood.mibPerSecond };
}

export const ratioAt = ({ calmMs, floodedMs }: FloodFigures, fraction: number): number =>
  quantile(floodedMs, fraction) / quantile(calmMs, fraction);

async function execs(api: ApiClient, id: string, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let at = 0; at < count; at += 1) {
    const started = performance.now();
    const reply = await api.post(`/v1/sessions/${id}/execs?wait=30s`, { command: 'true' });
    times.push(performance.now() - started);
    if (reply.status !== 200 || reply.json.status !== 'exited') throw new Error(reply.text);
  }
  return times;
}

/** One frame on its way at a time, each as large as it may be: what a runner's pump makes of `yes`. */
class ScriptedFlood implements Flood {
  private state: 'held' | 'flowing' | 'ended' = 'held';
  private idle = true;
  private bytes = 0;
  private flowedMs = 0;
  private since = 0;

  flow(): void {
    this.state = 'flowing';
    this.since = performance.now();
  }

  async hold(): Promise<void> {
    this.state = 'held';
    while (!this.idle) await sleep(1);
    this.flowedMs += performance.now() - this.since;
  }

  end(): void {
    this.state = 'ended';
  }

  get mibPerSecond(): number {
    return this.bytes / 1024 / 1024 / (this.flowedMs / 1000);
  }

  async run(exec: FakeExec): Promise<void> {
    const chunk = Buffer.alloc(MAX_CHUNK_BYTES, 'y\n');
    while (this.state !== 'ended') {
      if (this.state === 'held') {
        this.idle = true;
        await sleep(5);
        continue;
      }
      this.idle = false;
      const items = Array.from({ length: MAX_OUTPUT_BYTES / MAX_CHUNK_BYTES }, (_, at) =>
        exec.chunk('stdout', this.bytes + at * MAX_CHUNK_BYTES, chunk),
      );
      const reply = await exec.send(items);
      if (!reply.ok || reply.refused) throw new Error(JSON.stringify(reply));
      this.bytes += MAX_OUTPUT_BYTES;
    }
    exec.written.stdout = this.bytes;
  }
}
