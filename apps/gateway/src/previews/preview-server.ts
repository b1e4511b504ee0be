import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { StoreRefused, StoreUnavailable } from '@vmux/event-store';
import { Refusal } from '@vmux/events';
import { TunnelBroken, TunnelRefused, TunnelUnreachable } from '@vmux/tunnel';
import type { Logger } from 'pino';
import type { SessionReader } from '../application/session-reader';
import { hasEnded, type SessionView } from '../application/session-view';
import { isLetGo, type Place, type SandboxStreams } from '../data-plane/sandbox-streams';
import { ApiError } from '../http/api-error';
import type { Metrics } from '../http/metrics';
import { awaitApp } from './awaited-app';
import type { OpenPreviews } from './open-previews';
import {
  type Admission,
  accessOf,
  maySeeLog,
  type PreviewAccess,
  type Visitor,
} from './preview-access';
import { cookieNameOf, valuesOf } from './preview-headers';
import type { PreviewName, PreviewNames } from './preview-names';
import { NOTICES, waiting } from './preview-notices';
import { EVENTS_PATH, type Notice, refuseSocket, showNotice, wantsHtml } from './preview-pages';
import { BadAnswer, NoAnswer, type Passage, type PreviewProxy, VisitorGone } from './preview-proxy';
import { isPort, isReserved } from './reserved-ports';
import type { Strangers } from './strangers';
import type { WaitingEvents } from './waiting-events';

export interface PreviewParts {
  readonly names: PreviewNames;
  readonly access: PreviewAccess;
  readonly proxy: PreviewProxy;
  readonly open: OpenPreviews;
  readonly strangers: Strangers;
  readonly events: WaitingEvents;
  readonly reader: Pick<SessionReader, 'read' | 'waitFor'>;
  readonly streams: Pick<SandboxStreams, 'open' | 'awake'>;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Serves apps under their own names, on the listener of the API and before it. */
export class PreviewServer {
  /** Sessions that are being woken for a page: whoever comes meanwhile waits with it. */
  private readonly waking = new Set<string>();

  constructor(private readonly parts: PreviewParts) {}

  nameOf(request: IncomingMessage): PreviewName | null {
    return this.parts.names.parse(request.headers.host);
  }

  async serve(request: IncomingMessage, response: ServerResponse, name: PreviewName) {
    const begun = performance.now();
    response.once('close', () => {
      const { statusCode: status } = response;
      const elapsed = performance.now() - begun;
      this.parts.metrics.observe(request.method ?? '', 'preview', status, elapsed);
    });
    try {
      await this.answer(request, response, name);
    } catch (fault) {
      if (fault instanceof VisitorGone || response.destroyed) return;
      showNotice(request, response, await this.noticeFor(fault, name));
    }
  }

  async serveUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, name: PreviewName) {
    const lookAway = watchForEnd(socket);
    try {
      if (request.headers.upgrade?.toLowerCase() !== 'websocket')
        return refuseSocket(socket, NOTICES.protocol);
      const entered = await this.entered(request, name, true);
      if (entered.kind !== 'in') return refuseSocket(socket, noticeOf(entered));
      const { visitor, url, view } = entered;
      const notice = notServed(view, name);
      if (notice) return refuseSocket(socket, notice);
      await this.during(name, visitor, socket, async (signal) => {
        const place = await this.placeOf(view, name, visitor, signal);
        const passage = { ...this.passage(request, name, url, place, signal), begins: lookAway };
        await this.parts.proxy.upgrade(passage, socket, head, 'websocket');
      });
    } catch (fault) {
      lookAway();
      const notice = await this.noticeFor(fault, name);
      if (!socket.destroyed) refuseSocket(socket, notice);
    }
  }

  private async answer(request: IncomingMessage, response: ServerResponse, name: PreviewName) {
    const entered = await this.entered(request, name, false);
    if (entered.kind === 'clean') return this.redirect(response, entered);
    if (entered.kind === 'out') return showNotice(request, response, noticeOf(entered));
    const { visitor, url, view } = entered;
    if (url.startsWith('/.vmux/preview/')) return this.ours(request, response, name, entered);
    const notice = notServed(view, name);
    if (notice) return showNotice(request, response, notice);
    if (view.status !== 'running' && wantsHtml(request)) {
      this.wakeFor(view, name, visitor);
      return showNotice(request, response, waiting(view, name, this.mayWake(view, name, visitor)));
    }
    await this.during(name, visitor, response, async (signal) => {
      const place = await this.placeOf(view, name, visitor, signal);
      await this.parts.proxy.pass(this.passage(request, name, url, place, signal), response);
    });
  }

  private async entered(request: IncomingMessage, name: PreviewName, isUpgrade: boolean) {
    if (!isWellFormed(request)) return { kind: 'out', why: 'malformed' } as const;
    if (!isPort(name.port)) return { kind: 'out', why: 'port' } as const;
    const { strangers, names } = this.parts;
    const waitSeconds = strangers.wait(request, name, names.scheme);
    if (waitSeconds !== null) return { kind: 'out', why: 'tooOften', waitSeconds } as const;
    const view = await this.parts.reader.read(name.sessionId);
    const admission = await this.parts.access.admit(request, name, view, isUpgrade);
    strangers.settled(request, name, admission);
    if (admission.kind !== 'in' || !view) return admission as Exclude<Admission, { kind: 'in' }>;
    return { ...admission, view };
  }

  private redirect(response: ServerResponse, { token, url, ageMs }: Admission & { kind: 'clean' }) {
    const { scheme } = this.parts.names;
    const cookie = [
      `${cookieNameOf(scheme)}=${token}`,
      ...['Path=/', `Max-Age=${Math.floor(ageMs / 1000)}`, 'HttpOnly', 'SameSite=Lax'],
      ...(scheme === 'https' ? ['Secure'] : []),
    ].join('; ');
    const headers = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };
    // What begins with two slashes names another host to a browser, which takes `\\` for `/`.
    const location = /^\/[\\/]/.test(url) ? `/.${url}` : url;
    response.writeHead(303, { ...headers, location, 'set-cookie': cookie });
    response.end();
  }

  private async ours(
    request: IncomingMessage,
    response: ServerResponse,
    name: PreviewName,
    { visitor, url }: { readonly visitor: Visitor; readonly url: string },
  ): Promise<void> {
    if (url !== EVENTS_PATH || request.method !== 'GET')
      return showNotice(request, response, NOTICES.nothing);
    await this.during(name, visitor, response, (signal) =>
      this.parts.events.stream(response, name, maySeeLog(visitor), signal),
    );
  }

  /** Whoever leaves gives up the place at once, whatever is still under way for them. */
  private async during(
    { sessionId, port }: PreviewName,
    visitor: Visitor,
    client: ServerResponse | Duplex,
    work: (signal: AbortSignal) => Promise<void>,
  ): Promise<void> {
    if (client.destroyed) throw new VisitorGone();
    const held = this.parts.open.enter(sessionId, port, visitor);
    if (!held) throw new TooMany();
    const gone = new AbortController();
    const leave = () => {
      held.leave();
      gone.abort();
    };
    client.once('close', leave);
    try {
      await work(AbortSignal.any([held.signal, gone.signal]));
    } finally {
      client.off('close', leave);
      held.leave();
    }
  }

  /** The session's sandbox; one that rests is woken for those who may. */
  private async placeOf(
    view: SessionView,
    name: PreviewName,
    visitor: Visitor,
    signal: AbortSignal,
  ): Promise<Place> {
    const { sandbox, status, id: sessionId } = view;
    if (status === 'running' && sandbox) {
      const { epoch, instance, runnerId } = sandbox;
      return { sandbox: { sessionId, epoch, instance }, runnerId };
    }
    if (!this.mayWake(view, name, visitor)) throw new Waits(view, false);
    const place = await this.parts.streams.awake(visitorAs(view), sessionId, 'preview', signal);
    await awaitApp(this.parts.reader, name, signal);
    return place;
  }

  private mayWake(view: SessionView, { port }: PreviewName, visitor: Visitor): boolean {
    return visitor.kind !== 'public' || view.status === 'starting' || accessOf(view, port).wake;
  }

  private wakeFor(view: SessionView, name: PreviewName, visitor: Visitor): void {
    if (view.status === 'starting' || !this.mayWake(view, name, visitor)) return;
    if (this.waking.has(view.id)) return;
    this.waking.add(view.id);
    const { signal } = new AbortController();
    this.parts.streams
      .awake(visitorAs(view), view.id, 'preview', signal)
      .catch((err) => this.parts.logger.info({ err, session: view.id }, 'a preview woke nothing'))
      .finally(() => this.waking.delete(view.id));
  }

  private passage(
    request: IncomingMessage,
    name: PreviewName,
    url: string,
    place: Place,
    signal: AbortSignal,
  ): Passage {
    const { scheme } = this.parts.names;
    const dial = () => this.parts.streams.open(place, { op: 'dial', port: name.port }, signal);
    return { request, name, scheme, url, signal, dial };
  }

  private async noticeFor(fault: unknown, name: PreviewName): Promise<Notice> {
    if (!isLetGo(fault)) return this.noticeOfFault(fault, name);
    try {
      const view = await this.parts.reader.read(name.sessionId);
      return view ? noticeNow(view, name) : NOTICES.ended;
    } catch (unread) {
      return this.noticeOfFault(unread, name);
    }
  }

  private noticeOfFault(fault: unknown, name: PreviewName): Notice {
    if (fault instanceof TooMany) return NOTICES.tooMany;
    if (fault instanceof Waits) return waiting(fault.view, name, fault.wakes);
    if (fault instanceof BadAnswer) return { ...NOTICES.badAnswer, text: fault.message };
    if (fault instanceof NoAnswer) return { ...NOTICES.noAnswer, text: fault.message };
    if (fault instanceof TunnelRefused && fault.code === 'port_refused')
      return fault.facts.errno === 'ECONNRESET' ? NOTICES.badAnswer : waiting(null, name, true);
    if (fault instanceof TunnelRefused || fault instanceof TunnelUnreachable)
      return NOTICES.unreachable;
    if (fault instanceof StoreUnavailable || fault instanceof StoreRefused)
      return NOTICES.unreachable;
    if (fault instanceof TunnelBroken) return NOTICES.broken;
    if (fault instanceof ApiError || fault instanceof Refusal)
      return { ...NOTICES.resting, text: fault.message };
    this.parts.logger.error({ err: fault, session: name.sessionId }, 'a preview failed');
    return NOTICES.internal;
  }
}

/** That a client has left shows only to who reads: what it sends meanwhile is kept for later. */
function watchForEnd(socket: Duplex): () => void {
  const look = () => {
    if (socket.readableLength === 0) socket.read(0);
  };
  const leave = () => void socket.destroy();
  socket.on('readable', look).on('end', leave);
  return () => void socket.off('readable', look).off('end', leave);
}

class TooMany extends Error {}

class Waits extends Error {
  constructor(
    readonly view: SessionView,
    readonly wakes: boolean,
  ) {
    super('the session does not run');
  }
}

/** One Host, and a path: anything else could mean one thing here and another to the app. */
const isWellFormed = ({ rawHeaders, url = '' }: IncomingMessage): boolean =>
  valuesOf(rawHeaders, 'host').length === 1 &&
  (url.startsWith('/') || url === '*') &&
  valuesOf(rawHeaders, 'transfer-encoding').every((value) => value.toLowerCase() === 'chunked');

type Refused =
  | Exclude<Admission, { kind: 'in' }>
  | { readonly kind: 'out'; readonly why: 'port' | 'malformed' }
  | { readonly kind: 'out'; readonly why: 'tooOften'; readonly waitSeconds: number };

function noticeOf(entered: Refused): Notice {
  if (entered.kind !== 'out') return NOTICES.token;
  const notice: Notice = NOTICES[entered.why];
  return entered.why === 'tooOften'
    ? { ...notice, retryAfterSeconds: entered.waitSeconds }
    : notice;
}

/** For who was on the way into a sandbox that is not there any more. */
function noticeNow(view: SessionView, name: PreviewName): Notice {
  const ended = notServed(view, name);
  if (ended) return ended;
  return view.status === 'running'
    ? NOTICES.unreachable
    : waiting(view, name, view.status === 'starting');
}

function notServed(view: SessionView, { port }: PreviewName): Notice | null {
  if (isReserved(view.provider, port)) return NOTICES.port;
  if (hasEnded(view) || view.status === 'stopping') return NOTICES.ended;
  return null;
}

/** Who wakes a session by looking at it acts for its owner. */
const visitorAs = ({ owner }: SessionView) => ({
  ...{ keyId: 'preview', owner, scopes: [], liveSessions: null },
});
