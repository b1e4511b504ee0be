import type { PreviewName } from './preview-names';
import { isPreviewToken } from './preview-tokens';

/** Names and values in turn, as they came. */
export type RawHeaders = readonly string[];

export const TOKEN_HEADER = 'x-vmux-preview-token';
const COOKIE = 'vmux_preview';
const SECURE_COOKIE = `__Host-${COOKIE}`;

export const cookieNameOf = (scheme: 'http' | 'https'): string =>
  scheme === 'https' ? SECURE_COOKIE : COOKIE;

/** They are about one connection, and two meet here. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Said by us alone. */
const OURS = new Set([
  'host',
  'expect',
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
  'x-forwarded-server',
  'x-real-ip',
  TOKEN_HEADER,
]);

export interface Forwarding {
  readonly name: PreviewName;
  readonly scheme: 'http' | 'https';
  readonly clientIp: string;
  /** A body that has no length in its head. */
  readonly chunked: boolean;
  readonly upgrade: string | null;
}

/** What the app is sent for what the client sent. */
export function requestHeaders(raw: RawHeaders, about: Forwarding): string[] {
  const { name, scheme, clientIp, chunked, upgrade } = about;
  const named = namedInConnection(raw);
  const own = `http://localhost:${name.port}`;
  const kept: string[] = [];
  for (const [field, value] of pairsOf(raw)) {
    const lower = field.toLowerCase();
    if (HOP_BY_HOP.has(lower) || OURS.has(lower) || named.has(lower)) continue;
    if (lower === 'cookie') {
      const cookies = withoutOurCookie(value);
      if (cookies !== '') kept.push(field, cookies);
    } else if (lower === 'origin') kept.push(field, value === name.origin ? own : value);
    else if (lower === 'referer') kept.push(field, moved(value, name.origin, own));
    else kept.push(field, value);
  }
  const gatewayPort = /:(\d+)$/.exec(name.host)?.[1] ?? (scheme === 'https' ? '443' : '80');
  return [
    ...['Host', `localhost:${name.port}`],
    ...kept,
    ...['X-Forwarded-For', clientIp],
    ...['X-Forwarded-Host', name.host],
    ...['X-Forwarded-Port', gatewayPort],
    ...['X-Forwarded-Proto', scheme],
    ...(chunked ? ['Transfer-Encoding', 'chunked'] : []),
    ...(upgrade === null ? ['Connection', 'close'] : ['Connection', 'Upgrade', 'Upgrade', upgrade]),
  ];
}

/** What the client is sent for what the app sent. */
export function responseHeaders(raw: RawHeaders, { name }: Pick<Forwarding, 'name'>): string[] {
  const named = namedInConnection(raw);
  const kept: string[] = [];
  for (const [field, value] of pairsOf(raw)) {
    const lower = field.toLowerCase();
    if (HOP_BY_HOP.has(lower) || named.has(lower)) continue;
    if (lower === 'set-cookie') {
      const cookie = hostOnly(value);
      if (cookie !== null) kept.push(field, cookie);
    } else if (lower === 'location') kept.push(field, outward(value, name));
    else kept.push(field, value);
  }
  return kept;
}

export function* pairsOf(raw: RawHeaders): Generator<readonly [string, string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? '', raw[at + 1] ?? ''];
}

export const valuesOf = (raw: RawHeaders, name: string): string[] =>
  [...pairsOf(raw)].filter(([field]) => field.toLowerCase() === name).map(([, value]) => value);

function namedInConnection(raw: RawHeaders): Set<string> {
  const named = valuesOf(raw, 'connection').flatMap((value) => value.split(','));
  return new Set(named.map((name) => name.trim().toLowerCase()).filter((name) => name !== ''));
}

const cookiesOf = (header: string): string[] => header.split(';').map((cookie) => cookie.trim());
const cookieName = (cookie: string): string => (cookie.split('=', 1)[0] ?? '').trim();
const isOurCookie = (cookie: string): boolean =>
  cookieName(cookie) === COOKIE || cookieName(cookie) === SECURE_COOKIE;

const withoutOurCookie = (header: string): string =>
  cookiesOf(header)
    .filter((cookie) => cookie !== '' && !isOurCookie(cookie))
    .join('; ');

/** The tokens among the cookies: a sandbox of another name may have left some, too. */
export function cookieTokens(raw: RawHeaders, scheme: 'http' | 'https'): string[] {
  const wanted = cookieNameOf(scheme);
  return valuesOf(raw, 'cookie')
    .flatMap(cookiesOf)
    .filter((cookie) => cookieName(cookie) === wanted)
    .map((cookie) => cookie.slice(cookie.indexOf('=') + 1))
    .slice(0, 4);
}

/** An app sets cookies for its own name alone, and not ours. */
function hostOnly(cookie: string): string | null {
  const [pair = '', ...attributes] = cookie.split(';');
  if (isOurCookie(pair)) return null;
  const kept = attributes.filter((attribute) => !/^\s*domain\s*(=|$)/i.test(attribute));
  return [pair, ...kept].join(';');
}

/** An app that believes itself at localhost redirects there. */
function outward(location: string, { port, origin }: PreviewName): string {
  const inside = new RegExp(`^https?://(localhost|127\\.0\\.0\\.1|\\[::1\\]):${port}(?=[/?#]|$)`);
  return location.replace(inside, origin);
}

const moved = (url: string, from: string, to: string): string =>
  url === from || url.startsWith(`${from}/`) ? `${to}${url.slice(from.length)}` : url;

/** The URL without our token, and the token; an app's own parameter of that name stays. */
export function tokenInUrl(url: string): { readonly token: string | null; readonly clean: string } {
  const at = url.indexOf('?');
  if (at < 0) return { token: null, clean: url };
  const isOurs = (part: string) =>
    part.startsWith('token=') && isPreviewToken(part.slice('token='.length));
  const parts = url.slice(at + 1).split('&');
  const ours = parts.find(isOurs);
  if (ours === undefined) return { token: null, clean: url };
  const rest = parts.filter((part) => !isOurs(part)).join('&');
  return {
    token: ours.slice('token='.length),
    clean: `${url.slice(0, at)}${rest === '' ? '' : `?${rest}`}`,
  };
}
