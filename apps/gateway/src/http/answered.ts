import type { FastifyReply } from 'fastify';
import type { Answer } from '../application/commander';

/** Where in the history a change stands: lists take the position as `after`. */
export function answered(reply: FastifyReply, { accepted }: Answer) {
  const { revision, position } = accepted;
  reply.header('vmux-position', position);
  if (accepted.repeated) reply.header('idempotency-replayed', 'true');
  return { revision, position };
}
