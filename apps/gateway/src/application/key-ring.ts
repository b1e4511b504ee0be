import { createHash } from 'node:crypto';
import { type EventStore, StreamNotFound, WrongRevision } from '@vmux/event-store';
import { eventIdOf, Refusal } from '@vmux/events';
import {
  API_KEY_STREAM,
  type ApiKey,
  type ApiKeyEvent,
  applyApiKey,
  hashOf,
  matches,
  newApiKeyEvent,
  newSecret,
  parseToken,
  type Scope,
} from './api-keys';
import type { Caller } from './caller';

export type { Caller };

export interface NewApiKey {
  readonly owner: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly liveSessions: number | null;
}

export interface Issuer {
  readonly principal: string;
  readonly correlationId: string;
  readonly requestKey: string;
  readonly digest: string;
}

const MAX_CONFLICTS = 10;
const LOOK_AGAIN_AFTER_MS = 1000;

/** The API keys: a fold of their stream that follows it live, so that a revoked key ends everywhere. */
export class KeyRing {
  private readonly keys = new Map<string, ApiKey>();
  private revision = -1;
  private lookedAt = 0;
  private looking: Promise<void> | null = null;

  constructor(
    private readonly store: EventStore,
    private readonly onFault: (fault: unknown) => void,
  ) {}

  /** Reads all keys, then follows the stream until the signal aborts. */
  async start(signal: AbortSignal): Promise<void> {
    await this.catchUp();
    void this.follow(signal);
  }

  /** Null for a token that is none, is not known, or is revoked. */
  async verify(token: string): Promise<Caller | null> {
    const parsed = parseToken(token);
    if (!parsed) return null;
    // Another gateway may have made it a moment ago.
    if (!this.keys.has(parsed.keyId)) await this.lookAgain();
    const key = this.keys.get(parsed.keyId);
    if (!key || !matches(key, parsed.secret) || key.revokedAt !== null) return null;
    const { keyId, owner, scopes, liveSessions } = key;
    return { keyId, owner, scopes, liveSessions };
  }

  isRevoked(keyId: string): boolean {
    return this.keys.get(keyId)?.revokedAt !== null;
  }

  async list(): Promise<readonly ApiKey[]> {
    await this.catchUp();
    return [...this.keys.values()];
  }

  /** The secret is null when the request had been made before: it is shown once. */
  async create(wanted: NewApiKey, by: Issuer): Promise<{ key: ApiKey; secret: string | null }> {
    const keyId = keyIdOf(by.requestKey);
    const secret = newSecret();
    await this.change(by, () => {
      const known = this.keys.get(keyId);
      if (!known) {
        const { requestKey, digest } = by;
        const data = { ...wanted, keyId, hash: hashOf(secret), requestKey, digest, at: Date.now() };
        return { type: 'ApiKeyCreated', data };
      }
      if (known.digest !== by.digest)
        throw new Refusal('key_reused', 'this Idempotency-Key was used for another request');
      return null;
    });
    const key = this.keys.get(keyId);
    if (!key) throw new Error(`the key ${keyId} is not in its stream`);
    return { key, secret: matches(key, secret) ? secret : null };
  }

  /** Null for a key that never was. Revoking twice is revoking. */
  async revoke(keyId: string, by: Issuer): Promise<ApiKey | null> {
    await this.catchUp();
    if (!this.keys.has(keyId)) return null;
    await this.change(by, () =>
      this.keys.get(keyId)?.revokedAt === null
        ? { type: 'ApiKeyRevoked', data: { keyId, at: Date.now() } }
        : null,
    );
    return this.keys.get(keyId) ?? null;
  }

  /** Read, decide, append at the revision read; from the read again on a conflict. */
  private async change(by: Issuer, decide: () => ApiKeyEvent | null): Promise<void> {
    for (let conflicts = 0; ; conflicts += 1) {
      await this.catchUp();
      const event = decide();
      if (!event) return;
      const expected = this.revision < 0 ? 'none' : this.revision;
      const id = eventIdOf(API_KEY_STREAM, this.revision + 1, by.requestKey, 0);
      try {
        const recorded = newApiKeyEvent(id, event, by.principal, by.correlationId);
        await this.store.append(API_KEY_STREAM, expected, [recorded]);
        return await this.catchUp();
      } catch (fault) {
        if (!(fault instanceof WrongRevision) || conflicts === MAX_CONFLICTS) throw fault;
      }
    }
  }

  private async catchUp(): Promise<void> {
    try {
      const from = this.revision + 1;
      for await (const event of this.store.read(API_KEY_STREAM, { from })) this.take(event);
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
  }

  /** Tokens that nobody made must not turn into a read of the store each. */
  private async lookAgain(): Promise<void> {
    if (Date.now() - this.lookedAt < LOOK_AGAIN_AFTER_MS) return this.looking ?? undefined;
    this.lookedAt = Date.now();
    this.looking = this.catchUp().finally(() => {
      this.looking = null;
    });
    return this.looking;
  }

  private async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const after = this.revision < 0 ? {} : { afterRevision: this.revision };
        const source = { stream: API_KEY_STREAM, ...after };
        for await (const item of this.store.subscribe(source, signal)) {
          if (item.kind === 'event') this.take(item.event);
        }
      } catch (fault) {
        this.onFault(fault);
      }
      if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 1000).unref());
    }
  }

  private take(event: Parameters<typeof applyApiKey>[1]): void {
    if (event.revision <= this.revision) return;
    this.revision = event.revision;
    applyApiKey(this.keys, event);
  }
}

const keyIdOf = (requestKey: string): string =>
  createHash('sha256').update(`api-key ${requestKey}`).digest('hex').slice(0, 12);
