import type { HistoryEvent } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { findServer, findSession } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  follow: { type: 'boolean', short: 'f' },
  from: { type: 'string' },
  json: { type: 'boolean' },
} as const;

/** Every event of a session. */
export async function history(args: readonly string[]): Promise<number> {
  const given = parsed('history', args, options);
  const name = onlyName(given, 'history');
  const from = given.number('from');
  const sandbox = await findSession(await findServer(), name);
  for await (const event of sandbox.history({ from, follow: given.has('follow') }))
    await print(given.has('json') ? jsonText(event) : lineOf(event));
  return 0;
}

const maxDetailChars = 160;

function lineOf({ revision, recordedAt, type, data }: HistoryEvent): string {
  const { at: _, ...rest } = data;
  const detail = visible(JSON.stringify(rest));
  const shown = detail.length > maxDetailChars ? `${detail.slice(0, maxDetailChars)}…` : detail;
  return `${String(revision).padStart(5)}  ${recordedAt}  ${visible(type).padEnd(20)}  ${shown}`;
}
