import {
  createReadStream,
  createWriteStream,
  lstatSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Sandbox, VmuxError } from '@vmux/sdk';
import { parsed } from '../arguments';
import { tarOf } from '../bundle/tar';
import { everythingIn } from '../copy/tree';
import { defaultLimits, unpack } from '../copy/untar';
import { Failure, UsageError } from '../failure';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const options = {
  user: { type: 'string', short: 'u' },
  'max-size': { type: 'string' },
  json: { type: 'boolean' },
} as const;

/** A path in a session is `SESSION:path`; anything with a slash before the colon is of this machine. */
const remote = /^([@A-Za-z0-9][A-Za-z0-9-]*):(.*)$/s;

/** A file or a directory, from this machine into a session or from a session to this machine. */
export async function cp(args: readonly string[]): Promise<number> {
  const given = parsed('cp', args, options);
  const [from, to, extra] = given.positionals;
  if (from === undefined || to === undefined || extra !== undefined)
    throw new UsageError('vmux cp takes what to copy and where', 'as in: vmux cp file @last:/tmp/');
  const [, fromSession, fromPath = ''] = remote.exec(from) ?? [];
  const [, toSession, toPath = ''] = remote.exec(to) ?? [];
  if ((fromSession === undefined) === (toSession === undefined))
    throw new UsageError(
      'vmux cp copies between this machine and a session',
      'write one of the two as SESSION:path, as in: vmux cp @last:/tmp/out .',
    );
  const maxMiB = given.size('max-size');
  const user = given.text('user');
  const sandbox = await findSession(await findServer(), fromSession ?? toSession ?? '');
  const limits = maxMiB ? { ...defaultLimits, maxBytes: maxMiB * 1024 ** 2 } : defaultLimits;
  const copied =
    fromSession === undefined
      ? await send(sandbox, from, toPath, user)
      : await fetchTo(sandbox, fromPath, to, user, limits);
  if (given.has('json')) await print(jsonText({ session: sandbox.id, ...copied }));
  return 0;
}

interface Copied {
  readonly to: string;
  readonly entries: number;
}

async function send(
  sandbox: Sandbox,
  from: string,
  path: string,
  user: string | undefined,
): Promise<Copied> {
  const stats = statSync(from, { throwIfNoEntry: false });
  if (!stats) throw new Failure(`there is no "${from}" here`, 'check the path');
  const to = await destination(sandbox, path, basename(join(process.cwd(), from)), user);
  if (stats.isDirectory()) {
    const tar = tarOf(from, everythingIn(from));
    const { entries } = await sandbox.files.upload(to, tar, { user });
    return { to, entries };
  }
  if (!stats.isFile()) throw new Failure(`"${from}" is neither a file nor a directory`);
  await sandbox.files.write(to, createReadStream(from), { user, mode: stats.mode & 0o777 });
  return { to, entries: 1 };
}

/** Into a directory that is there, under its own name; else under the name that is given. */
async function destination(
  sandbox: Sandbox,
  path: string,
  name: string,
  user: string | undefined,
): Promise<string> {
  if (path === '' || path.endsWith('/')) return `${path}${name}`;
  try {
    const { type } = await sandbox.files.stat(path, { user, follow: true });
    return type === 'directory' ? `${path}/${name}` : path;
  } catch (fault) {
    if (fault instanceof VmuxError && fault.code === 'file_not_found') return path;
    throw fault;
  }
}

async function fetchTo(
  sandbox: Sandbox,
  path: string,
  given: string,
  user: string | undefined,
  limits: typeof defaultLimits,
): Promise<Copied> {
  const { type, mode, size } = await found(sandbox, path || '.', user);
  const isInside = given.endsWith('/') || statSync(given, { throwIfNoEntry: false })?.isDirectory();
  const name = nameOf(path, sandbox);
  const to = isInside ? join(given, name) : given;
  if (type === 'directory') {
    const { entries } = await unpack(
      await sandbox.files.download(path || '.', { user }),
      to,
      limits,
    );
    return { to, entries };
  }
  if (type !== 'file')
    throw new Failure(`"${path}" is neither a file nor a directory`, 'copy what it stands for');
  if (size > limits.maxBytes)
    throw new Failure(`"${path}" is larger than allowed`, 'allow more with --max-size');
  await save(await sandbox.files.read(path, { user, format: 'stream' }), to, {
    mode: Number.parseInt(mode, 8) & 0o777,
    maxBytes: limits.maxBytes,
  });
  return { to, entries: 1 };
}

async function found(sandbox: Sandbox, path: string, user: string | undefined) {
  try {
    return await sandbox.files.stat(path, { user, follow: true });
  } catch (fault) {
    if (!(fault instanceof VmuxError && fault.code === 'file_not_found')) throw fault;
    throw new Failure(
      `there is no "${path}" in ${sandbox.id}`,
      `look with: vmux exec ${sandbox.id} -- ls -la`,
    );
  }
}

/** Whole or not at all; a link that is there is replaced, not followed. */
async function save(
  source: AsyncIterable<Uint8Array>,
  to: string,
  { mode, maxBytes }: { mode: number; maxBytes: number },
): Promise<void> {
  if (lstatSync(to, { throwIfNoEntry: false })?.isDirectory())
    throw new Failure(`"${to}" is a directory`, 'end it with a slash to copy into it');
  const draft = `${to}.${process.pid}.vmux`;
  try {
    await pipeline(
      Readable.from(limited(source, maxBytes)),
      createWriteStream(draft, { flags: 'wx', mode }),
    );
    renameSync(draft, to);
  } catch (fault) {
    rmSync(draft, { force: true });
    throw fault;
  }
}

async function* limited(source: AsyncIterable<Uint8Array>, maxBytes: number) {
  let left = maxBytes;
  for await (const piece of source) {
    left -= piece.length;
    if (left < 0) throw new Failure('it is larger than allowed', 'allow more with --max-size');
    yield piece;
  }
}

/** What a copy is called; the session's whole directory by the session. */
function nameOf(path: string, { id }: Sandbox): string {
  const name = path.split('/').filter(Boolean).at(-1);
  return name === undefined || name === '.' || name === '..' ? id : name;
}
