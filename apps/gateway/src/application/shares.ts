import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { isSessionId } from '@vmux/events';
import { timeLimit } from '@vmux/messaging';
import type { Caller, Share } from './caller';
import type { SessionReader } from './session-reader';
import type { SessionView } from './session-view';

export type { Share };

export type ShareCaller = Caller & { readonly share: Share };

const TOKEN = /^vmuxshare_(s[0-9a-f]{12})_([A-Za-z0-9_-]{43})$/;
const SECRET_BYTES = 32;

export const newShareSecret = (): string => randomBytes(SECRET_BYTES).toString('base64url');
export const shareTokenOf = (shareId: string, secret: string): string =>
  `vmuxshare_${shareId}_${secret}`;
export const isShareToken = (token: string): boolean => token.startsWith('vmuxshare_');
export const hashOfSecret = (secret: string): string =>
  createHash('sha256').update(secret).digest('hex');

/** Checks shares on the session's head: what was revoked anywhere a moment ago opens nothing. */
export class Shares {
  constructor(
    private readonly sessions: Pick<SessionReader, 'read' | 'waitFor'>,
    private readonly now: () => number = Date.now,
  ) {}

  /** Null for a token that is none, is of another session, is revoked or has expired. */
  async verify(token: string, sessionId: string): Promise<ShareCaller | null> {
    const [, shareId, secret] = TOKEN.exec(token) ?? [];
    if (!shareId || !secret || !isSessionId(sessionId)) return null;
    const view = await this.sessions.read(sessionId);
    const found = view?.shares.get(shareId);
    if (!view || !found || !this.isOpen(view, shareId)) return null;
    const hash = Buffer.from(hashOfSecret(secret), 'hex');
    if (!timingSafeEqual(Buffer.from(found.tokenHash, 'hex'), hash)) return null;
    const { rights, ports, expiresAt } = found;
    const share = { id: shareId, sessionId, rights, ports, expiresAt };
    return { keyId: `share:${shareId}`, owner: view.owner, scopes: [], liveSessions: null, share };
  }

  /** Whether it still opens anything, as of the session's head. */
  async holds({ id, sessionId }: Share): Promise<boolean> {
    const view = await this.sessions.read(sessionId);
    return view !== null && this.isOpen(view, id);
  }

  /** Returns once it is revoked, has expired or its session is deleted; or when nobody waits any more. */
  async ended({ id, sessionId, expiresAt }: Share, signal: AbortSignal): Promise<void> {
    const leftMs = Math.max(0, Math.min(expiresAt - this.now(), MAX_TIMER_MS));
    const until = AbortSignal.any([signal, timeLimit(leftMs)]);
    const isOver = (view: SessionView) => (this.isOpen(view, id) ? undefined : true);
    await this.sessions.waitFor(sessionId, isOver, until);
  }

  private isOpen({ shares, status }: SessionView, shareId: string): boolean {
    const share = shares.get(shareId);
    if (!share || status === 'deleted') return false;
    return share.revokedAt === null && share.expiresAt > this.now();
  }
}

/** Timers count in 31 bits. A stream that is open for that long is simply opened again. */
const MAX_TIMER_MS = 2 ** 31 - 1;
