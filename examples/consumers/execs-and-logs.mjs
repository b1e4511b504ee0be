// Writes every exec event to <dir>/execs.jsonl and all output to <dir>/output.jsonl. Kill it whenever you
// like: the next run goes on after the last line, without loss or repeat.
//
//   NATS_URL=nats://127.0.0.1:4222 node examples/consumers/execs-and-logs.mjs <dir>
//
// With NATS_USER and NATS_PASSWORD_FILE where the server wants them.
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { connect } from 'nats';
import { follow } from './follow.mjs';
import { LineFile } from './line-file.mjs';

const [dir] = process.argv.slice(2);
const { NATS_URL, NATS_USER, NATS_PASSWORD_FILE } = process.env;
if (!dir || !NATS_URL) {
  console.error('NATS_URL=… node execs-and-logs.mjs <dir>');
  process.exit(2);
}

const connection = await connect({
  servers: NATS_URL,
  maxReconnectAttempts: -1,
  waitOnFirstConnect: true,
  ...(NATS_USER && {
    user: NATS_USER,
    pass: readFileSync(NATS_PASSWORD_FILE, 'utf8').trim(),
    inboxPrefix: `_INBOX_${NATS_USER}`,
  }),
});
await mkdir(dir, { recursive: true });
console.log(JSON.stringify({ ready: true }));

await Promise.all([
  // `vmux.events.*.ExecExited` would give one type; the types that are wanted are chosen here instead.
  copyTo('execs.jsonl', 'VMUX_EVENTS', 'vmux.events.>', (message) => {
    const event = message.json();
    return event.type.startsWith('Exec') ? event : null;
  }),
  copyTo('output.jsonl', 'VMUX_OUTPUT', 'vmux.output.*', ({ headers, subject, data }) => {
    if (headers.get('Vmux-Type') !== 'LogChunk') return null;
    return {
      sessionId: subject.split('.')[2],
      execId: headers.get('Vmux-Exec'),
      stream: headers.get('Vmux-Stream'),
      offset: Number(headers.get('Vmux-Offset')),
      b64: Buffer.from(data).toString('base64'),
    };
  }),
]);

async function copyTo(name, stream, filter, recordOf) {
  const file = await LineFile.open(join(dir, name));
  const checkpoint = file.last?.checkpoint ?? null;
  const onFault = (fault) => console.error(`${stream}: ${fault.message}`);
  for await (const item of follow({ connection, stream, filter, checkpoint, onFault })) {
    const record = recordOf(item.message);
    if (record) await file.append({ checkpoint: item.checkpoint, record });
  }
}
