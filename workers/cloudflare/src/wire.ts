/** What a runner and the Worker say to each other. Both ends import this file; it knows neither. */

export interface SandboxName {
  readonly sessionId: string;
  readonly epoch: number;
  readonly instance: string;
}

export interface Limits {
  readonly cpus: number;
  readonly memoryMiB: number;
  readonly diskMiB: number;
  readonly pids: number;
}

/** PUT /v1/sandboxes/<session>/<epoch>/<instance> */
export interface CreateBody {
  readonly limits: Limits;
  readonly egress: boolean;
  /** A checkpoint of this Worker's bucket to begin with. */
  readonly restoreFrom: string | null;
}

export type Found =
  | { readonly state: 'running' }
  | { readonly state: 'gone'; readonly evidence: string };

export interface Listed {
  readonly id: SandboxName;
  readonly limits: Limits;
  readonly createdAtMs: number;
  readonly probe: Found;
}

/** GET /v1/about */
export interface About {
  /** True when no Cloudflare is involved. */
  readonly emulated: boolean;
  /** Of the instance types, those that this Worker was deployed with. */
  readonly instanceTypes: readonly string[];
  readonly checkpoints: boolean;
  readonly egress: boolean;
}

export interface CheckpointTaken {
  readonly ref: string;
  readonly bytes: number;
}

/** What the Worker refuses with; each code has one status. */
export const STATUS = {
  /** The Worker has no key: it takes no request at all. */
  closed: 503,
  unsigned: 401,
  expired: 401,
  replayed: 401,
  not_found: 404,
  invalid: 400,
  unsupported: 422,
  exists: 409,
  stale_epoch: 409,
  /** Another runner has taken it over. */
  fenced: 410,
  /** What answered as its container is not the one it was created in. */
  sandbox_lost: 410,
  /** Nothing was decided: the same call may succeed later. */
  unavailable: 503,
} as const;
export type RefusalCode = keyof typeof STATUS;

export interface Refused {
  readonly ok: false;
  readonly code: RefusalCode;
  readonly message: string;
}
export type Answer<T> = { readonly ok: true; readonly value: T } | Refused;

export const answer = <T>(value: T): Answer<T> => ({ ok: true, value });
export const refuse = (code: RefusalCode, message: string): Refused => ({
  ok: false,
  code,
  message,
});

/** A line of JSON that the container sends as a text message among the pipe's binary ones. */
export interface Notice {
  readonly notice: 'evicting';
  /** When the container is killed at the latest. */
  readonly deadlineAtMs: number;
}

const plainName = /^[A-Za-z0-9._-]{1,64}$/;
const sessionName = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** The fault in a name that came from outside, or nothing. */
export function faultOfName({ sessionId, epoch, instance }: SandboxName): string | undefined {
  if (!sessionName.test(sessionId)) return 'a session id is 1–63 of a-z, 0-9 and dashes';
  if (!Number.isSafeInteger(epoch) || epoch < 1) return 'an epoch is a whole number from 1 on';
  if (!plainName.test(instance) || instance.startsWith('.'))
    return 'an instance is 1–64 of A-Za-z0-9._-';
  return undefined;
}

export const pathOf = ({ sessionId, epoch, instance }: SandboxName): string =>
  `/v1/sandboxes/${sessionId}/${epoch}/${instance}`;
