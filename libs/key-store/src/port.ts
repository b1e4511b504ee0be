import type { ClearEnv, SealedEnv } from '@vmux/events';

/**
 * One key per session, outside its history: what is sealed under it is gone for ever once the key is
 * destroyed, although the sealed form stands in events that are never changed.
 */
export interface KeyStore {
  /** Makes the session's key, durably, unless it has one; returns the key's name. */
  keyOf(sessionId: string): Promise<string>;

  /** Makes the key if need be. */
  seal(sessionId: string, env: ClearEnv): Promise<SealedEnv>;

  /** Throws `KeyDestroyed`, or `SealBroken` for what this key did not seal for this session. */
  unseal(sessionId: string, sealed: SealedEnv): Promise<ClearEnv>;

  /** A keyed SHA-256 in hex: tells equal requests apart from others without giving secrets to guessing. */
  digest(sessionId: string, bytes: Uint8Array): Promise<string>;

  /** Destroying twice is destroying. */
  destroy(sessionId: string): Promise<void>;
}

export class KeyDestroyed extends Error {
  readonly code = 'key_destroyed';
  constructor(readonly sessionId: string) {
    super(`the key of ${sessionId} is destroyed: what it sealed cannot be opened again`);
    this.name = 'KeyDestroyed';
  }
}

export class SealBroken extends Error {
  readonly code = 'seal_broken';
  constructor(readonly sessionId: string) {
    super(`sealed values of ${sessionId} cannot be opened: they were sealed elsewhere or changed`);
    this.name = 'SealBroken';
  }
}
