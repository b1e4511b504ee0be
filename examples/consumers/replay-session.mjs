// Writes a session's whole history to stdout, one event per line, and with --follow goes on with what
// happens until the session is deleted. A gateway that goes away meanwhile costs time, not events.
//
//   VMUX_URL=http://127.0.0.1:7070 VMUX_API_KEY_FILE=… node examples/consumers/replay-session.mjs <session> [--follow]
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const args = process.argv.slice(2);
const follow = args.includes('--follow');
const [session] = args.filter((arg) => !arg.startsWith('--'));
const { VMUX_URL, VMUX_API_KEY_FILE } = process.env;
if (!session || !VMUX_URL || !VMUX_API_KEY_FILE) {
  console.error('VMUX_URL=… VMUX_API_KEY_FILE=… node replay-session.mjs <session> [--follow]');
  process.exit(2);
}
const key = readFileSync(VMUX_API_KEY_FILE, 'utf8').trim();

/** Asking again would not help. */
class Refused extends Error {}

const RETRY_MS = 500;
let next = 0;

for (let whole = false; !whole; ) {
  try {
    whole = await replayFrom();
  } catch (fault) {
    if (fault instanceof Refused) {
      console.error(fault.message);
      process.exit(1);
    }
    console.error(`${fault.message}: going on from revision ${next}`);
    await sleep(RETRY_MS);
  }
}

/** True when the answer ended where the history does; one that was cut throws. */
async function replayFrom() {
  const path = `/v1/sessions/${encodeURIComponent(session)}/events?from=${next}&follow=${follow}`;
  const response = await fetch(new URL(path, VMUX_URL), {
    headers: { authorization: `Bearer ${key}`, accept: 'application/x-ndjson' },
  });
  if (response.status >= 500 || response.status === 429)
    throw new Error(`the gateway says ${response.status}`);
  if (!response.ok) throw new Refused(`${response.status} ${await response.text()}`);
  let rest = '';
  let last = null;
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = `${rest}${text}`.split('\n');
    rest = lines.pop();
    for (const line of lines) last = take(line);
  }
  return !follow || last?.type === 'SessionDeleted';
}

/** Revisions count up from 0 without a hole: what was seen is skipped, what is missing is an error. */
function take(line) {
  const event = JSON.parse(line);
  if (event.revision > next) throw new Error(`revision ${next} is missing`);
  if (event.revision === next) {
    process.stdout.write(`${line}\n`);
    next += 1;
  }
  return event;
}
