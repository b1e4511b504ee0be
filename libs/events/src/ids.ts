import { createHash } from 'node:crypto';
import { Refusal } from './errors';
import { matching } from './shape';

/**
 * Names of things. Everything derived is a hash of what it stands for, so that a repeated request finds
 * the same name again.
 */
export const MAX_NAME_LENGTH = 52;

const NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;
const SESSION_ID = /^(?=.{6,57}$)[a-z0-9]+(?:-[a-z0-9]+)*-[0-9a-f]{4}$/;

const RESERVED = new Set([
  'admin',
  'all',
  'api',
  'dashboard',
  'docs',
  'health',
  'last',
  'localhost',
  'metrics',
  'new',
  'preview',
  'previews',
  'session',
  'sessions',
  'static',
  'vmux',
  'www',
]);

export const sessionId = matching(SESSION_ID, 'a session id such as geospot-rl-9e55');
export const execId = matching(/^e[0-9a-f]{12}$/, 'an exec id: e and 12 hex digits');
export const checkpointId = matching(/^c[0-9a-f]{12}$/, 'a checkpoint id: c and 12 hex digits');
export const forkId = matching(/^f[0-9a-f]{12}$/, 'a fork id: f and 12 hex digits');
export const shareId = matching(/^s[0-9a-f]{12}$/, 'a share id: s and 12 hex digits');
export const signalId = matching(/^g[0-9a-f]{12}$/, 'a signal id: g and 12 hex digits');
export const runnerId = matching(
  /^(?=.{1,63}$)[a-z0-9]+(?:-[a-z0-9]+)*$/,
  'a runner id: lower case letters, digits and single dashes',
);
export const instanceId = matching(/^[A-Za-z0-9._:-]{1,128}$/, 'an instance name');
export const ownerId = matching(/^[A-Za-z0-9._@:-]{1,128}$/, 'an owner');
export const principalId = matching(/^[A-Za-z0-9._@:-]{1,200}$/, 'a principal');
export const correlationId = matching(/^[A-Za-z0-9._:-]{1,128}$/, 'a correlation id');
export const scopedKeyText = matching(/^[A-Za-z0-9_-]{22}$/, 'a scoped key');
export const sha256Hex = matching(/^[0-9a-f]{64}$/, 'a SHA-256 in hex');
export const traceparentText = matching(
  /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/,
  'a W3C traceparent',
);

export const isSessionId = (value: string): boolean => SESSION_ID.test(value);

/** A name that a person gave: taken as it is or refused, never bent. */
export function givenName(name: string): string {
  if (!NAME.test(name) || name.length > MAX_NAME_LENGTH)
    throw new Refusal(
      'invalid_name',
      `a name has lower case letters, digits and single dashes, at most ${MAX_NAME_LENGTH}: try "${nameOfDirectory(name)}"`,
      { name: name.slice(0, 200) },
    );
  if (RESERVED.has(name))
    throw new Refusal('reserved_name', `"${name}" is reserved: choose another name`, { name });
  return name;
}

/** A directory's base name, bent until it is a name. */
export function nameOfDirectory(directory: string): string {
  const base = directory.split(/[\\/]+/).findLast((part) => part !== '') ?? '';
  const slug = base
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+/, '')
    .slice(0, MAX_NAME_LENGTH)
    .replace(/-+$/, '');
  if (slug === '') return 'run';
  return RESERVED.has(slug) ? `${slug}-run` : slug;
}

/** The same owner and key find the same session; a collision with another's moves to the next attempt. */
export const sessionIdOf = (name: string, owner: string, key: string, attempt: number): string =>
  `${name}-${hash('session', owner, key, String(attempt)).toString('hex').slice(0, 4)}`;

/** A client's key, bound to its owner and to the operation (method and path). */
export const scopedKey = (owner: string, operation: string, clientKey: string): string =>
  hash('key', owner, operation, clientKey).subarray(0, 16).toString('base64url');

const derived = (prefix: string, parts: readonly string[]): string =>
  `${prefix}${hash(prefix, ...parts)
    .toString('hex')
    .slice(0, 12)}`;

export const deriveExecId = (...parts: readonly string[]): string => derived('e', parts);
export const deriveCheckpointId = (...parts: readonly string[]): string => derived('c', parts);
export const deriveForkId = (...parts: readonly string[]): string => derived('f', parts);
export const deriveShareId = (...parts: readonly string[]): string => derived('s', parts);
export const deriveSignalId = (...parts: readonly string[]): string => derived('g', parts);

/**
 * A UUID (version 5 in form) from the stream, the revision it is to be appended at, the key and the
 * event's place in the append: the same append has the same ids, so the store recognises a repeat.
 */
export function eventIdOf(stream: string, revision: number, key: string, index: number): string {
  const bytes = hash('event', stream, String(revision), key, String(index)).subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x50, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** Lengths go into the hash, so that no two lists of parts run into the same bytes. */
function hash(...parts: readonly string[]): Buffer {
  const sum = createHash('sha256');
  for (const part of parts) sum.update(`${Buffer.byteLength(part)}:${part}`);
  return sum.digest();
}
