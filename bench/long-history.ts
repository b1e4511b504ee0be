import { fact, LOG_MARK_EVERY, NO_OUTPUT, type SessionEvent, viewStream } from '@vmux/events';
import { seededRandom, until } from '@vmux/testing';
import { EXEC_SPEC, LogBuilder } from '../apps/gateway/test/log-builder';
import type { ApiClient } from '../test/support/api-client';
import type { Gateway, Stack } from '../test/support/stack';

const WRITER = 'effffffffffff';
const EXECS = 33_333;
const BATCH = 200;
const OUTPUT_BYTES = 256;
const RECONNECTS = 100;

export interface LongFigures {
  readonly events: number;
  /** The first read by a gateway that has to fold everything, and by one that finds a view. */
  readonly foldMs: number;
  readonly firstReadMs: number;
  readonly reconnectMs: readonly number[];
}

/** A session that has run very many execs, and one that wrote a little all the while. */
export async function longHistory(
  stack: Stack,
  api: ApiClient,
  gateway: () => Promise<Gateway>,
): Promise<LongFigures> {
  const { json } = await api.post('/v1/sessions', { name: 'owned' });
  const id = 'long-history-0000';
  const builder = new LogBuilder(stack.store, id, json.owner);
  // Nobody runs that, so nobody adds to what is built here.
  await builder.created('nowhere');
  await builder.issued(WRITER);
  const random = seededRandom(2);
  for (let from = 0; from < EXECS; from += BATCH) {
    const count = Math.min(BATCH, EXECS - from);
    const ids = Array.from({ length: count }, (_, at) => execIdOf(from + at));
    for (const _ of ids) builder.write(WRITER, 'stdout', random.bytes(OUTPUT_BYTES));
    await builder.session(...ids.flatMap(ran));
  }

  const first = await timed(gateway, id);
  const position = async () => {
    const options = { direction: 'backwards', limit: 1 } as const;
    for await (const { metadata } of stack.store.read(viewStream(id), options))
      return metadata.part === Number(metadata.parts) - 1;
    return false;
  };
  await until(() => position().catch(() => false), { timeoutMs: 60_000, everyMs: 100 });
  await first.gateway.process.stop();
  const second = await timed(gateway, id);
  return {
    events: 3 * EXECS,
    foldMs: first.elapsedMs,
    firstReadMs: second.elapsedMs,
    reconnectMs: await reconnecting(second.gateway.api, id),
  };
}

const execIdOf = (at: number): string => `e${at.toString(16).padStart(12, '0')}`;

const ran = (execId: string): SessionEvent[] => [
  fact('ExecIssued', { at: 2, execId, epoch: 1, spec: EXEC_SPEC, follows: null }),
  fact('ExecStarted', { at: 3, execId, epoch: 1, pid: 7 }),
  fact('ExecExited', {
    ...{ at: 4, execId, epoch: 1, usage: null, outcome: { kind: 'exited', code: 0 } },
    sizes: NO_OUTPUT,
  }),
];

async function timed(gateway: () => Promise<Gateway>, id: string) {
  const started = await gateway();
  const before = performance.now();
  const { status, text } = await started.api.get(`/v1/sessions/${id}`);
  const elapsedMs = performance.now() - before;
  if (status !== 200) throw new Error(text);
  return { gateway: started, elapsedMs };
}

/** As a client does: from the last event that it saw, wherever that was. */
async function reconnecting(api: ApiClient, id: string): Promise<number[]> {
  const random = seededRandom(3);
  const times: number[] = [];
  for (let at = 0; at < RECONNECTS; at += 1) {
    const seen = random.integer(EXECS - 1);
    const offset = (seen + 1) * OUTPUT_BYTES;
    // A mark stands at every 64th revision, the first included.
    const revision = seen + Math.floor(seen / (LOG_MARK_EVERY - 1)) + 1;
    const headers = { 'last-event-id': `${offset}@${revision}` };
    const started = performance.now();
    const events = api.events(`/v1/sessions/${id}/logs?follow=1`, { headers });
    const first = await events.next();
    times.push(performance.now() - started);
    if (first.value?.data.offset !== offset) throw new Error('not the offset that was asked for');
    await events.return(undefined);
  }
  return times;
}
