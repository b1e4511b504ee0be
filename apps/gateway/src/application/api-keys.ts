import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { JsonObject, NewEvent, RecordedEvent } from '@vmux/event-store';

export const SCOPES = ['sessions:read', 'sessions:write', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

export const API_KEY_STREAM = 'api-keys';

export interface ApiKey {
  readonly keyId: string;
  readonly owner: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** SHA-256 of the secret, which is random enough to need no salt. */
  readonly hash: string;
  /** Of the request that created it. */
  readonly requestKey: string;
  readonly digest: string;
  readonly liveSessions: number | null;
  readonly createdAt: number;
  readonly revokedAt: number | null;
  readonly createdPosition: bigint;
}

export type ApiKeyEvent =
  | {
      readonly type: 'ApiKeyCreated';
      readonly data: Omit<ApiKey, 'createdAt' | 'revokedAt' | 'createdPosition'> & {
        readonly at: number;
      };
    }
  | {
      readonly type: 'ApiKeyRevoked';
      readonly data: { readonly keyId: string; readonly at: number };
    };

const VERSION = 1;

export const newApiKeyEvent = (
  id: string,
  event: ApiKeyEvent,
  principal: string,
  correlationId: string,
): NewEvent => ({
  id,
  type: event.type,
  data: event.data as unknown as JsonObject,
  metadata: { principal, correlationId, version: VERSION },
});

/** All keys that ever were, by id. An event that is not known is skipped. */
export function applyApiKey(keys: Map<string, ApiKey>, stored: RecordedEvent): void {
  if (Buffer.isBuffer(stored.data) || stored.metadata.version !== VERSION) return;
  const event = { type: stored.type, data: stored.data } as unknown as ApiKeyEvent;
  if (event.type === 'ApiKeyCreated') {
    const { at, ...data } = event.data;
    const key = { ...data, createdAt: at, revokedAt: null, createdPosition: stored.position };
    keys.set(data.keyId, key);
  } else if (event.type === 'ApiKeyRevoked') {
    const key = keys.get(event.data.keyId);
    if (key) keys.set(key.keyId, { ...key, revokedAt: key.revokedAt ?? event.data.at });
  }
}

const TOKEN = /^vmux_([0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
const SECRET_BYTES = 32;

export const newSecret = (): string => randomBytes(SECRET_BYTES).toString('base64url');
export const tokenOf = (keyId: string, secret: string): string => `vmux_${keyId}_${secret}`;
export const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');

export function parseToken(token: string): { keyId: string; secret: string } | null {
  const [, keyId, secret] = TOKEN.exec(token) ?? [];
  return keyId && secret ? { keyId, secret } : null;
}

/** Takes as long for a wrong secret as for the right one. */
export const matches = (key: ApiKey, secret: string): boolean =>
  timingSafeEqual(Buffer.from(key.hash, 'hex'), Buffer.from(hashOf(secret), 'hex'));
