import { timeLimit } from '@vmux/messaging';
import { execHasEnded } from '../application/exec-view';
import type { SessionReader } from '../application/session-reader';
import type { SessionView } from '../application/session-view';

const LISTENS_WITHIN_MS = 30_000;

/**
 * For whoever has woken a session: in a new sandbox its services have only just been started again. Returns
 * when the port is open, when nothing runs that might open it, or after a while.
 */
export async function awaitApp(
  reader: Pick<SessionReader, 'waitFor'>,
  { sessionId, port }: { readonly sessionId: string; readonly port: number },
  signal: AbortSignal,
): Promise<void> {
  const within = AbortSignal.any([signal, timeLimit(LISTENS_WITHIN_MS)]);
  const settled = (view: SessionView) => view.ports.has(port) || !hasService(view) || undefined;
  await reader.waitFor(sessionId, settled, within);
}

const hasService = ({ execs }: SessionView): boolean =>
  [...execs.values()].some((exec) => exec.purpose === 'service' && !execHasEnded(exec));
