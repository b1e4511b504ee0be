import { execIdShape, instanceIdShape, Malformed, sessionIdShape } from '@vmux/events';
import { TunnelRefused } from './errors';

/** Every stream is bound to one sandbox, which the runner must really have. */
export interface SandboxRef {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
}

interface OfFile {
  readonly sandbox: SandboxRef;
  /** Absolute, in the sandbox. */
  readonly path: string;
  /** As whom; null for the sandbox's own default. */
  readonly user: string | null;
}

/** What a stream is opened for. */
export type TunnelRequest =
  /** Data: the bytes from `offset` on. Result: `{next}`. */
  | {
      readonly op: 'stdin';
      readonly sandbox: SandboxRef;
      readonly execId: string;
      readonly writer: number;
      readonly offset: number;
      /** The input ends after these bytes. */
      readonly eof: boolean;
    }
  | {
      readonly op: 'resize';
      readonly sandbox: SandboxRef;
      readonly execId: string;
      readonly cols: number;
      readonly rows: number;
    }
  /** Data both ways: a connection to a port on the sandbox's own loopback. */
  | { readonly op: 'dial'; readonly sandbox: SandboxRef; readonly port: number }
  /** Result: what the sandbox uses now, by the names of the supervisor's figures. */
  | { readonly op: 'figures'; readonly sandbox: SandboxRef }
  /** Result: a `TunnelFile`. */
  | ({ readonly op: 'stat'; readonly followLink: boolean } & OfFile)
  /** Data: one `TunnelFile` per line, as JSON. */
  | ({ readonly op: 'list' } & OfFile)
  | ({ readonly op: 'read'; readonly offset: number; readonly length: number | null } & OfFile)
  /** Data: the content, whole. Result: `{bytes}`. */
  | ({ readonly op: 'write'; readonly mode: number | null; readonly parents: boolean } & OfFile)
  | ({ readonly op: 'remove'; readonly recursive: boolean } & OfFile)
  | ({ readonly op: 'mkdir'; readonly mode: number; readonly parents: boolean } & OfFile)
  | ({ readonly op: 'tar-out' } & OfFile)
  /** Data: the archive. Result: `{entries}`. */
  | ({ readonly op: 'tar-in' } & OfFile);

export interface TunnelFile {
  /** As text; a name that is not UTF-8 is exact only in `nameBase64`. */
  readonly name: string;
  readonly nameBase64: string | null;
  readonly type: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly modifiedAtMs: number;
  readonly linkTarget: string | null;
}

export const MAX_PATH_BYTES = 4095;
const USER = /^[A-Za-z0-9._-]{1,64}(:[A-Za-z0-9._-]{1,64})?$/;

export const isSandboxUser = (text: string): boolean => USER.test(text);
export const isSandboxPath = (text: string): boolean =>
  text.startsWith('/') && !text.includes('\0') && Buffer.byteLength(text) <= MAX_PATH_BYTES;

/** Takes a request off the wire; throws `TunnelRefused`. */
export function parseRequest(value: unknown): TunnelRequest {
  try {
    return requestOf(fieldsOf(value, 'request'));
  } catch (fault) {
    if (!(fault instanceof Malformed)) throw fault;
    throw new TunnelRefused('invalid', fault.message);
  }
}

function requestOf(fields: Fields): TunnelRequest {
  const sandbox = sandboxOf(fields.sandbox);
  const op = fields.op;
  switch (op) {
    case 'stdin':
      return {
        ...{ op, sandbox, execId: execIdShape(fields.execId, 'execId') },
        ...{ writer: whole(fields, 'writer', 1), offset: whole(fields, 'offset', 0) },
        eof: flag(fields, 'eof'),
      };
    case 'resize': {
      const execId = execIdShape(fields.execId, 'execId');
      const cols = whole(fields, 'cols', 1, 65_535);
      return { op, sandbox, execId, cols, rows: whole(fields, 'rows', 1, 65_535) };
    }
    case 'figures':
      return { op, sandbox };
    case 'dial':
      return { op, sandbox, port: whole(fields, 'port', 1, 65_535) };
    case 'stat':
      return { op, ...fileOf(fields, sandbox), followLink: flag(fields, 'followLink') };
    case 'read': {
      const length = fields.length === null ? null : whole(fields, 'length', 0);
      return { op, ...fileOf(fields, sandbox), offset: whole(fields, 'offset', 0), length };
    }
    case 'write': {
      const mode = fields.mode === null ? null : whole(fields, 'mode', 0, 0o7777);
      return { op, ...fileOf(fields, sandbox), mode, parents: flag(fields, 'parents') };
    }
    case 'remove':
      return { op, ...fileOf(fields, sandbox), recursive: flag(fields, 'recursive') };
    case 'mkdir': {
      const mode = whole(fields, 'mode', 0, 0o7777);
      return { op, ...fileOf(fields, sandbox), mode, parents: flag(fields, 'parents') };
    }
    case 'list':
    case 'tar-out':
    case 'tar-in':
      return { op, ...fileOf(fields, sandbox) };
    default:
      throw new Malformed('op', 'a known operation');
  }
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown, path: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Malformed(path, 'an object');
  return value as Fields;
}

function sandboxOf(value: unknown): SandboxRef {
  const fields = fieldsOf(value, 'sandbox');
  return {
    sessionId: sessionIdShape(fields.sessionId, 'sandbox.sessionId'),
    epoch: whole(fields, 'epoch', 0),
    instance: instanceIdShape(fields.instance, 'sandbox.instance'),
  };
}

function fileOf(fields: Fields, sandbox: SandboxRef): OfFile {
  const { path, user } = fields;
  if (typeof path !== 'string' || !isSandboxPath(path))
    throw new Malformed('path', `an absolute path of at most ${MAX_PATH_BYTES} bytes`);
  if (user !== null && (typeof user !== 'string' || !isSandboxUser(user)))
    throw new Malformed('user', 'a user, or user:group');
  return { sandbox, path, user };
}

function whole(fields: Fields, name: string, min: number, max = Number.MAX_SAFE_INTEGER): number {
  const value = fields[name];
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < min || value > max)
    throw new Malformed(name, `an integer from ${min} to ${max}`);
  return value;
}

function flag(fields: Fields, name: string): boolean {
  const value = fields[name];
  if (typeof value !== 'boolean') throw new Malformed(name, 'true or false');
  return value;
}
