import type { IncomingMessage } from 'node:http';
import { parseToken } from '../application/api-keys';
import type { PortAccessView, SessionView } from '../application/session-view';
import { isShareToken, type Share, type Shares } from '../application/shares';
import { cookieTokens, TOKEN_HEADER, tokenInUrl, valuesOf } from './preview-headers';
import type { PreviewName } from './preview-names';
import { isPreviewToken, type PreviewTokens } from './preview-tokens';

/** How somebody came in. */
export type Visitor =
  | { readonly kind: 'public' }
  | { readonly kind: 'token'; readonly generation: number; readonly expiresAt: number }
  | { readonly kind: 'share'; readonly share: Share; readonly expiresAt: number };

export const maySeeLog = (visitor: Visitor): boolean =>
  visitor.kind === 'token' || (visitor.kind === 'share' && visitor.share.rights.includes('logs'));

export type Admission =
  | { readonly kind: 'in'; readonly visitor: Visitor; readonly url: string }
  /** Its token goes into a cookie and out of the URL. */
  | { readonly kind: 'clean'; readonly token: string; readonly url: string; readonly ageMs: number }
  | { readonly kind: 'out'; readonly why: 'api_key' | 'token' | 'origin' };

const PRIVATE: PortAccessView = { public: false, wake: false, generation: 0 };

export const accessOf = (view: SessionView, port: number): PortAccessView =>
  view.access.get(port) ?? PRIVATE;

/** Looks at who may see a preview. Fails closed. */
export class PreviewAccess {
  constructor(
    private readonly tokens: PreviewTokens,
    private readonly shares: Pick<Shares, 'verify'>,
    private readonly scheme: 'http' | 'https',
    private readonly now: () => number = Date.now,
  ) {}

  async admit(
    request: IncomingMessage,
    name: PreviewName,
    view: SessionView | null,
    isUpgrade: boolean,
  ): Promise<Admission> {
    const { token, clean } = tokenInUrl(request.url ?? '/');
    if (carriesApiKey(request)) return { kind: 'out', why: 'api_key' };
    if (!view || view.status === 'deleted') return { kind: 'out', why: 'token' };
    const shown = valuesOf(request.rawHeaders, TOKEN_HEADER)[0] ?? token;
    if (shown !== null) {
      const visitor = await this.holder(shown, name, view);
      if (!visitor) return { kind: 'out', why: 'token' };
      const isRead = request.method === 'GET' || request.method === 'HEAD';
      if (token === shown && isRead && !isUpgrade)
        return { kind: 'clean', token, url: clean, ageMs: visitor.expiresAt - this.now() };
      return { kind: 'in', visitor, url: clean };
    }
    for (const cookie of cookieTokens(request.rawHeaders, this.scheme)) {
      const visitor = await this.holder(cookie, name, view);
      if (!visitor) continue;
      if (!isFromHere(request, name)) return { kind: 'out', why: 'origin' };
      return { kind: 'in', visitor, url: clean };
    }
    if (accessOf(view, name.port).public)
      return { kind: 'in', visitor: { kind: 'public' }, url: clean };
    return { kind: 'out', why: 'token' };
  }

  /** Whether somebody who came in may still be there. */
  isWelcome(visitor: Visitor, view: SessionView | null, port: number): boolean {
    if (!view || view.status === 'deleted') return false;
    const access = accessOf(view, port);
    if (visitor.kind === 'public') return access.public;
    if (visitor.kind === 'share' && view.shares.get(visitor.share.id)?.revokedAt !== null)
      return false;
    if (visitor.kind === 'share') return visitor.expiresAt > this.now();
    return visitor.generation === access.generation && visitor.expiresAt > this.now();
  }

  private async holder(
    token: string,
    { sessionId, port }: PreviewName,
    view: SessionView,
  ): Promise<(Visitor & { readonly expiresAt: number }) | null> {
    if (isShareToken(token)) {
      const share = (await this.shares.verify(token, sessionId))?.share;
      if (!share || !opens(share, port)) return null;
      return { kind: 'share', share, expiresAt: share.expiresAt };
    }
    const { generation } = accessOf(view, port);
    const expiresAt = await this.tokens.check(token, { sessionId, port, generation });
    return expiresAt === null ? null : { kind: 'token', generation, expiresAt };
  }
}

/** Without ports of its own it opens all of them. */
export const opens = ({ rights, ports }: Share, port: number): boolean =>
  rights.includes('ports') && (ports.length === 0 || ports.includes(port));

/**
 * An app must never see a key of the API, nor a token where it is not taken off: whoever sends one is told
 * so instead.
 */
function carriesApiKey(request: IncomingMessage): boolean {
  const credentials = valuesOf(request.rawHeaders, 'authorization').flatMap((value) =>
    value.split(/\s+/),
  );
  const others = [
    ...valuesOf(request.rawHeaders, TOKEN_HEADER),
    ...(request.url ?? '').split(/[?&]/).map((part) => part.slice(part.indexOf('=') + 1)),
  ];
  return (
    credentials.some(isPreviewToken) ||
    [...credentials, ...others].some((text) => parseToken(text) !== null)
  );
}

/** A browser sends cookies also for what other sites make it do. */
function isFromHere(request: IncomingMessage, { origin }: PreviewName): boolean {
  const origins = valuesOf(request.rawHeaders, 'origin');
  if (origins.some((each) => each !== origin)) return false;
  const { 'sec-fetch-site': site, 'sec-fetch-mode': mode } = request.headers;
  return site === undefined || site === 'same-origin' || site === 'none' || mode === 'navigate';
}
