import type { IncomingMessage } from 'node:http';
import { RateLimit } from '../application/rate-limit';
import type { Admission } from './preview-access';
import { cookieTokens, TOKEN_HEADER, tokenInUrl, valuesOf } from './preview-headers';
import type { PreviewName } from './preview-names';

const PER_SECOND = 10;
const BURST = 100;
const MAX_PLACES = 10_000;

/**
 * Slows down who is turned away again and again: they are refused before anything is read for them. Where
 * somebody was let in lately, others who come the same way are looked at all the same.
 */
export class Strangers {
  private readonly open = new Set<string>();
  private readonly entered = new Set<string>();

  constructor(private readonly rate = new RateLimit(PER_SECOND, BURST)) {}

  /** Seconds until it is worth asking again; null for who may be looked at. */
  wait(request: IncomingMessage, name: PreviewName, scheme: 'http' | 'https'): number | null {
    const place = placeOf(name);
    if (this.open.has(place)) return null;
    if (this.entered.has(place) && showsToken(request, scheme)) return null;
    return this.rate.wait(addressOf(request));
  }

  settled(request: IncomingMessage, name: PreviewName, admission: Admission): void {
    const place = placeOf(name);
    if (admission.kind === 'out') {
      if (admission.why === 'token') {
        this.open.delete(place);
        this.rate.take(addressOf(request));
      }
      return;
    }
    const isPublic = admission.kind === 'in' && admission.visitor.kind === 'public';
    remember(isPublic ? this.open : this.entered, place);
  }
}

const placeOf = ({ sessionId, port }: PreviewName): string => `${port}-${sessionId}`;
const addressOf = ({ socket }: IncomingMessage): string => socket.remoteAddress ?? '';

const showsToken = ({ url = '/', rawHeaders }: IncomingMessage, scheme: 'http' | 'https') =>
  tokenInUrl(url).token !== null ||
  valuesOf(rawHeaders, TOKEN_HEADER).length > 0 ||
  [...cookieTokens(rawHeaders, scheme)].length > 0;

function remember(places: Set<string>, place: string): void {
  places.delete(place);
  places.add(place);
  const [oldest] = places;
  if (places.size > MAX_PLACES && oldest !== undefined) places.delete(oldest);
}
