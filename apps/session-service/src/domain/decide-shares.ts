import { type CommandNamed, fact, Refusal, type SessionEvent } from '@vmux/events';
import { ownSession } from './fences';
import { MAX_SHARES, type Session } from './state';

export function grant(
  { sessionId, owner, at, data }: CommandNamed<'GrantShare'>,
  session: Session,
): SessionEvent[] {
  const { shares } = ownSession(session, sessionId, owner);
  if (shares.some(({ shareId }) => shareId === data.shareId))
    throw new Refusal('id_taken', `${data.shareId} exists: share under another id`, {
      shareId: data.shareId,
    });
  if (data.expiresAt <= at)
    throw new Refusal('nothing_to_do', 'a share has to expire in the future', {
      expiresAt: data.expiresAt,
    });
  if (shares.filter(({ expiresAt }) => expiresAt > at).length >= MAX_SHARES)
    throw new Refusal('too_many', `${MAX_SHARES} shares are open: revoke one`, { max: MAX_SHARES });
  return [fact('ShareGranted', { at, ...data })];
}

export function revoke(
  { sessionId, owner, at, data }: CommandNamed<'RevokeShare'>,
  session: Session,
): SessionEvent[] {
  const { shares } = ownSession(session, sessionId, owner);
  const open = shares.some(({ shareId }) => shareId === data.shareId);
  return open ? [fact('ShareRevoked', { at, ...data })] : [];
}
