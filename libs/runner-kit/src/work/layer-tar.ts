import type { Attribute, ManifestEntry } from '@vmux/artifacts';

const BLOCK = 512;
const FLAGS = { file: '0', hardlink: '1', link: '2', directory: '5', fifo: '6' } as const;

/** As engines take it in an image: times to the nanosecond and attributes are in records of their own. */
export type LayerItem = Omit<ManifestEntry, 'type' | 'content'> & {
  readonly type: keyof typeof FLAGS;
};

/** What stands before an entry's bytes in a tar archive of the form that POSIX calls pax. */
export function tarHeader(item: LayerItem): Buffer {
  const records = recordsOf(item);
  if (records.length === 0) return block(item, FLAGS[item.type], item.path, item.size);
  const more = Buffer.concat(records);
  return Buffer.concat([
    block({ ...item, mode: 0o600, uid: 0, gid: 0, modifiedAtNs: 0n }, 'x', 'more', more.length),
    more,
    tarPadding(more.length),
    block(item, FLAGS[item.type], item.path, item.size),
  ]);
}

export const tarPadding = (bytes: number): Buffer =>
  Buffer.alloc((BLOCK - (bytes % BLOCK)) % BLOCK);

/** A plain file of our own. */
export const plainFile = (path: string, size: number): LayerItem => ({
  ...{ type: 'file', path, size, target: '', mode: 0o644, uid: 0, gid: 0 },
  ...{ modifiedAtNs: 0n, attributes: [] },
});

export const TAR_END = Buffer.alloc(2 * BLOCK);

const MAX_OCTAL_ID = 0o7777777;
const MAX_OCTAL = 0o77777777777;
const SECOND = 1_000_000_000n;

function recordsOf({ path, target, uid, gid, size, modifiedAtNs, attributes }: LayerItem) {
  const records: Buffer[] = [];
  const add = (name: string, value: string | Buffer) => records.push(record(name, value));
  if (!fits(path)) add('path', path);
  if (!fits(target)) add('linkpath', target);
  if (uid > MAX_OCTAL_ID) add('uid', String(uid));
  if (gid > MAX_OCTAL_ID) add('gid', String(gid));
  if (size > MAX_OCTAL) add('size', String(size));
  if (!isPlainTime(modifiedAtNs)) add('mtime', decimal(modifiedAtNs));
  for (const { name, value } of attributes as readonly Attribute[])
    add(`SCHILY.xattr.${name}`, value);
  return records;
}

/** Not so long and of such characters that every reader takes it from the old fields. */
const fits = (text: string): boolean => text.length < 100 && /^[\x20-\x7e]*$/.test(text);
const isPlainTime = (ns: bigint): boolean =>
  ns % SECOND === 0n && ns >= 0n && ns / SECOND <= BigInt(MAX_OCTAL);

function decimal(ns: bigint): string {
  const [whole, rest] = [(ns < 0n ? -ns : ns) / SECOND, (ns < 0n ? -ns : ns) % SECOND];
  return `${ns < 0n ? '-' : ''}${whole}.${String(rest).padStart(9, '0')}`;
}

/** `length name=value\n`, the length counting itself. */
function record(name: string, value: string | Buffer): Buffer {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'latin1') : value;
  const body = Buffer.concat([Buffer.from(` ${name}=`, 'latin1'), bytes, Buffer.from('\n')]);
  let length = body.length + String(body.length).length;
  if (String(length).length > String(body.length).length)
    length = body.length + String(length).length;
  return Buffer.concat([Buffer.from(String(length)), body]);
}

function block(item: LayerItem, flag: string, path: string, size: number): Buffer {
  const { mode, uid, gid, modifiedAtNs, target } = item;
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number) =>
    header.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1');
  header.write(path.slice(0, 100), 0, 'latin1');
  octal(mode, 100, 8);
  octal(Math.min(uid, MAX_OCTAL_ID), 108, 8);
  octal(Math.min(gid, MAX_OCTAL_ID), 116, 8);
  octal(size > MAX_OCTAL ? 0 : size, 124, 12);
  octal(isPlainTime(modifiedAtNs) ? Number(modifiedAtNs / SECOND) : 0, 136, 12);
  header.write('        ', 148, 'latin1');
  header.write(flag, 156, 'latin1');
  header.write(flag === 'x' ? '' : target.slice(0, 100), 157, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}
