import type { ShareRight } from '@vmux/events';
import type { Scope } from './api-keys';

/** Whoever asks, by an API key or by a share. */
export interface Caller {
  readonly keyId: string;
  readonly owner: string;
  readonly scopes: readonly Scope[];
  readonly liveSessions: number | null;
  /** Set for whoever comes with a share in the place of a key: nothing but what it says is open. */
  readonly share?: Share;
}

/** What a share token opens: one session, and of it what its rights say. */
export interface Share {
  readonly id: string;
  readonly sessionId: string;
  readonly rights: readonly ShareRight[];
  /** With the right `ports`: these, or all of them when none is named. */
  readonly ports: readonly number[];
  readonly expiresAt: number;
}
