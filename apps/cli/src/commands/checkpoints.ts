import type { CheckpointInfo, Sandbox } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { Failure } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { ageOf, print, table } from '../terminal/output';

/** The checkpoints of a session, the oldest first. */
export async function checkpoints(args: readonly string[]): Promise<number> {
  const given = parsed('checkpoints', args, { json: { type: 'boolean' } });
  const sandbox = await findSession(await findServer(), onlyName(given, 'checkpoints'));
  const all = await sandbox.time.checkpoints();
  if (given.has('json')) await print(jsonText(all));
  else
    await print(
      table([['CHECKPOINT', 'NAME', 'STATUS', 'SIZE', 'NEW', 'FORMS', 'AGE'], ...all.map(rowOf)]),
    );
  return 0;
}

const rowOf = (each: CheckpointInfo): string[] => [
  each.id,
  each.name ?? '',
  each.message ? `${each.status}: ${each.message}` : each.status,
  sizeOf(each.bytes),
  sizeOf(each.newBytes),
  [...(each.portable ? ['portable'] : []), ...(each.native ? [each.native] : [])].join('+'),
  ageOf(each.at),
];

function sizeOf(bytes: number | null): string {
  if (bytes === null) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let value = bytes;
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

/** The checkpoint that is meant: by its id, its name, or @last. */
export async function findCheckpoint(sandbox: Sandbox, text: string): Promise<string> {
  if (/^c[0-9a-f]{12}$/.test(text)) return text;
  const taken = (await sandbox.time.checkpoints()).filter(({ status }) => status === 'taken');
  const found = taken.filter(({ name }) => text === '@last' || name === text).at(-1);
  if (found) return found.id;
  throw new Failure(
    `${sandbox.id} has no checkpoint "${text}"`,
    `see them with: vmux checkpoints ${sandbox.id}`,
  );
}
