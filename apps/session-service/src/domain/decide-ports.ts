import { type CommandNamed, fact, Refusal, type SessionEvent } from '@vmux/events';
import { livingSession } from './fences';
import { MAX_PORT_ACCESS, type PortAccess, type Session } from './state';

const PRIVATE: PortAccess = { public: false, wake: false, generation: 0 };

/** A port is private until somebody says otherwise. */
export function setAccess(
  { sessionId, owner, at, data }: CommandNamed<'SetPortAccess'>,
  session: Session,
): SessionEvent[] {
  const { access } = livingSession(session, sessionId, owner);
  const { port, revokeTokens } = data;
  const known = access[port];
  const before = known ?? PRIVATE;
  const isPublic = data.public ?? before.public;
  const wake = data.wake ?? before.wake;
  const generation = before.generation + (revokeTokens ? 1 : 0);
  const isSame = isPublic === before.public && wake === before.wake && !revokeTokens;
  if (isSame) return [];
  if (!known && Object.keys(access).length >= MAX_PORT_ACCESS)
    throw new Refusal('too_many', `${MAX_PORT_ACCESS} ports have access of their own`, {
      max: MAX_PORT_ACCESS,
    });
  return [fact('PortAccessChanged', { at, port, public: isPublic, wake, generation })];
}
