import { Terminal, Vmux, VmuxError } from '@vmux/sdk';
import type { SeededRandom } from '@vmux/testing';
import type { PatientClient } from './client';
import type { Follower } from './followers';

const PIECE_BYTES = 3_000;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Types into a terminal as a person's client does, and keeps what it shows to the end. */
export async function attach(
  client: PatientClient,
  random: SeededRandom,
  follower: Follower,
  input: Buffer,
): Promise<void> {
  const { session, execId } = follower.operation;
  const url = random.pick(client.gateways);
  const vmux = new Vmux({ url, apiKey: client.key, retryForMs: 60_000 });
  const path = `/v1/sessions/${session}/execs/${execId}/attach`;
  const terminal = new Terminal(vmux, path, { offset: 0, cols: 80, rows: 24 });
  let over = false;
  const typing = (async () => {
    for (let at = 0; at < input.length && !over; at += PIECE_BYTES) {
      await terminal.type(input.subarray(at, at + PIECE_BYTES));
      await pause(random.integer(60));
    }
  })();
  const pieces: Buffer[] = [];
  try {
    for await (const item of terminal) {
      if (item.kind === 'bytes') pieces.push(Buffer.from(item.bytes));
      if (item.kind === 'gap') follower.fault = `a gap from ${item.from} to ${item.to}`;
      if (item.kind === 'exit') follower.shown = Buffer.concat(pieces);
    }
  } catch (fault) {
    if (!(fault instanceof VmuxError)) throw fault;
    follower.fault = `${fault.code}: ${fault.message}`;
  } finally {
    over = true;
    terminal.detach();
  }
  await typing;
}
