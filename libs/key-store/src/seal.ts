import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import type { ClearEnv, SealedEnv } from '@vmux/events';
import { clearEnvShape } from '@vmux/events';
import { SealBroken } from './port';

export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const ALGORITHM = 'aes-256-gcm';

export interface SessionKey {
  readonly sessionId: string;
  readonly keyId: string;
  readonly secret: Buffer;
}

/** Values under AES-256-GCM; session, key and names are bound to them, so that none can be exchanged. */
export function seal(key: SessionKey, env: ClearEnv): SealedEnv {
  const names = Object.keys(env).sort();
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, derived(key, 'seal'), nonce);
  cipher.setAAD(associated(key, names));
  const values = JSON.stringify(names.map((name) => env[name]));
  const body = Buffer.concat([cipher.update(values, 'utf8'), cipher.final()]);
  const sealed = Buffer.concat([nonce, body, cipher.getAuthTag()]).toString('base64');
  return { names, keyId: key.keyId, sealed };
}

export function unseal(key: SessionKey, { names, keyId, sealed }: SealedEnv): ClearEnv {
  const bytes = Buffer.from(sealed, 'base64');
  if (keyId !== key.keyId || bytes.length < NONCE_BYTES + TAG_BYTES)
    throw new SealBroken(key.sessionId);
  const decipher = createDecipheriv(
    ALGORITHM,
    derived(key, 'seal'),
    bytes.subarray(0, NONCE_BYTES),
    { authTagLength: TAG_BYTES },
  );
  decipher.setAAD(associated(key, names));
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
  const values = opened(key, decipher, bytes.subarray(NONCE_BYTES, -TAG_BYTES));
  if (!Array.isArray(values) || values.length !== names.length) throw new SealBroken(key.sessionId);
  return clearEnvShape(
    Object.fromEntries(names.map((name, index) => [name, values[index]])),
    'environment',
  );
}

export const keyedDigest = (key: SessionKey, bytes: Uint8Array): string =>
  createHmac('sha256', derived(key, 'digest')).update(bytes).digest('hex');

function opened(key: SessionKey, decipher: ReturnType<typeof createDecipheriv>, body: Buffer) {
  try {
    const text = Buffer.concat([decipher.update(body), decipher.final()]).toString('utf8');
    return JSON.parse(text) as unknown;
  } catch {
    throw new SealBroken(key.sessionId);
  }
}

const associated = (key: SessionKey, names: readonly string[]): Buffer =>
  Buffer.from(JSON.stringify(['vmux-env-1', key.sessionId, key.keyId, names]), 'utf8');

/** One secret, two uses: neither shows anything of the other. */
const derived = (key: SessionKey, use: 'seal' | 'digest'): Buffer =>
  Buffer.from(hkdfSync('sha256', key.secret, key.sessionId, `vmux ${use} 1`, KEY_BYTES));
