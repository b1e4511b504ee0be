import type { Logger } from 'pino';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Caller } from '../application/key-ring';
import type { LogReader } from '../application/log-reader';
import type { SessionCommands } from '../application/session-commands';
import type { SandboxStreams } from '../data-plane/sandbox-streams';
import { nextWriter } from '../data-plane/writers';
import { ApiError } from '../http/api-error';
import type { Callers } from '../http/callers';
import type { Followers } from '../http/followers';
import type { Upgrade } from '../http/upgrades';
import { attachQuery } from './attach-query';
import { Attachment, type AttachRequest } from './attachment';
import { MAX_MESSAGE_BYTES } from './frames';
import type { Screens } from './screens';

export const ATTACH_PATH = /^\/v1\/sessions\/([^/]{1,128})\/execs\/([^/]{1,128})\/attach$/;

export interface AttachParts {
  readonly callers: Callers;
  readonly sessions: SessionCommands;
  readonly streams: SandboxStreams;
  readonly logs: LogReader;
  readonly screens: Screens;
  readonly followers: Followers;
  readonly logger: Logger;
}

/** Lets clients in to terminals. */
export class AttachServer {
  private readonly sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });
  /** Who typed, resized or came last, by terminal. */
  private readonly attention = new Map<string, WebSocket>();

  constructor(private readonly parts: AttachParts) {}

  async take({ request, socket, head, url, path }: Upgrade): Promise<void> {
    const [sessionId = '', execId = ''] = path;
    const query = attachQuery(url.searchParams);
    const { callers, sessions } = this.parts;
    const caller = await callers.known({
      authorization: request.headers.authorization,
      ticket: query.ticket === null ? null : { text: query.ticket, sessionId },
      ip: request.socket.remoteAddress ?? '',
      sharedSession: sessionId,
    });
    callers.admit(caller, ['sessions:read'], ['watch', 'type']);
    const { exec } = await sessions.exec(caller, sessionId, execId);
    if (!exec.pty) throw new ApiError('no_terminal', 'the exec has no terminal');
    const mayType = caller.share
      ? caller.share.rights.includes('type')
      : caller.scopes.includes('sessions:write');
    const { offset, size, scrollback, writer, watches } = query;
    const asked: AttachRequest = {
      ...{ sessionId, exec, offset, size, scrollback },
      mode: mayType && !watches ? 'type' : 'watch',
      writer: writer ?? nextWriter(),
    };
    // Its end was told already: nobody would ever leave.
    if (socket.destroyed) return;
    const held = this.parts.followers.enter(caller);
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => {
      void this.serve(webSocket, caller, asked, held).finally(() => held.leave());
    });
    socket.once('close', () => held.leave());
  }

  private async serve(
    socket: WebSocket,
    caller: Caller,
    asked: AttachRequest,
    held: { readonly signal: AbortSignal; readonly keepAliveMs: number },
  ): Promise<void> {
    const { followers, sessions, streams, logs, screens, logger } = this.parts;
    const { sessionId, exec } = asked;
    const key = `${sessionId}/${exec.id}`;
    const { signal, keepAliveMs } = held;
    const gone = new AbortController();
    socket.once('close', () => gone.abort());
    const here = AbortSignal.any([signal, gone.signal]);
    const attachment = new Attachment(socket, asked, {
      ...{ logs, screens, streams, signal, keepAliveMs },
      place: () => streams.exec(caller, sessionId, exec.id, here),
      current: async () => (await sessions.exec(caller, sessionId, exec.id)).exec,
      isNews: () => {
        const isNews = this.attention.get(key) !== socket;
        this.attention.set(key, socket);
        return isNews;
      },
      reason: () =>
        followers.isClosing
          ? { code: 1001, text: 'the gateway is stopping' }
          : { code: 1008, text: 'the key was revoked' },
      onFault: (err) => logger.error({ err, session: sessionId }, 'an attachment failed'),
    });
    try {
      await attachment.run();
    } finally {
      if (this.attention.get(key) === socket) this.attention.delete(key);
    }
  }
}
