import { timingSafeEqual } from 'node:crypto';
import type { KeyStore } from '@vmux/key-store';
import { isShareToken } from '../application/shares';

export interface Grant {
  readonly sessionId: string;
  readonly port: number;
  /** Of the port's tokens: revoking raises it. */
  readonly generation: number;
  readonly expiresAt: number;
}

const TOKEN_PREFIX = 'vmxp_';
const TOKEN = /^vmxp_([0-9a-z]{1,11})_([0-9a-f]{64})$/;

/** Whether it is ours, right or wrong: an app never sees it. A share may open ports, too. */
export const isPreviewToken = (text: string): boolean =>
  text.startsWith(TOKEN_PREFIX) || isShareToken(text);

/** Tokens for one port of one session, under the session's key: nothing about them is stored. */
export class PreviewTokens {
  constructor(
    private readonly keys: Pick<KeyStore, 'digest'>,
    private readonly now: () => number = Date.now,
  ) {}

  async mint(grant: Grant): Promise<string> {
    return `${TOKEN_PREFIX}${grant.expiresAt.toString(36)}_${await this.mac(grant)}`;
  }

  /** When it ends; null for a token that is not, or no longer, one of this port's. */
  async check(token: string, about: Omit<Grant, 'expiresAt'>): Promise<number | null> {
    const [, expiry, mac] = TOKEN.exec(token) ?? [];
    if (!expiry || !mac) return null;
    const expiresAt = Number.parseInt(expiry, 36);
    if (!Number.isSafeInteger(expiresAt) || expiresAt <= this.now()) return null;
    const right = await this.mac({ ...about, expiresAt });
    return timingSafeEqual(Buffer.from(mac), Buffer.from(right)) ? expiresAt : null;
  }

  /** No request has this form: what is signed here is never signed there. */
  private mac({ sessionId, port, generation, expiresAt }: Grant): Promise<string> {
    const text = ['vmux preview token 1', sessionId, port, generation, expiresAt].join('\n');
    return this.keys.digest(sessionId, Buffer.from(text));
  }
}
