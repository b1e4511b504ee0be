import { timeLimit } from '@vmux/messaging';
import type { FastifyReply } from 'fastify';
import type { Answer } from '../application/commander';
import type { SessionReader } from '../application/session-reader';
import type { SessionView } from '../application/session-view';
import { millisecondsOf } from '../http/dto';

const LONGEST_MS = 300_000;

/**
 * Waits, for whoever asks for it and is still there, until what was asked of a session is done or has failed.
 */
export class Settling {
  constructor(private readonly reader: Pick<SessionReader, 'waitFor' | 'waitForLasting'>) {}

  /** What the session is then; nothing when nobody waits. 202 stays the answer to what goes on. */
  async wait(
    reply: FastifyReply,
    { accepted: { sessionId, revision, repeated } }: Answer,
    wait: string | undefined,
    isDone: (view: SessionView) => boolean = ({ operation }) => operation === null,
  ): Promise<{ readonly session?: object }> {
    if (wait === undefined) return {};
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    const patience = AbortSignal.any([
      timeLimit(Math.min(millisecondsOf(wait), LONGEST_MS)),
      gone.signal,
    ]);
    if (reply.raw.destroyed) gone.abort();
    const done = (view: SessionView) =>
      view.revision >= revision && isDone(view) ? view : undefined;
    // A view that holds the request is new enough; a repeat is told how things stand now.
    const view = repeated
      ? await this.reader.waitFor(sessionId, done, patience)
      : await this.reader.waitForLasting(sessionId, done, patience);
    if (!view) return {};
    reply.status(200);
    const { status, operation, message, provider } = view;
    return { session: { status, operation, message, provider } };
  }
}
