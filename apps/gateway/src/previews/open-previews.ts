import type { SessionReader } from '../application/session-reader';
import type { PreviewAccess, Visitor } from './preview-access';

interface Entry {
  readonly sessionId: string;
  readonly port: number;
  readonly visitor: Visitor;
  readonly over: AbortController;
}

export interface HeldPreview {
  readonly signal: AbortSignal;
  leave(): void;
}

export const MAX_PER_SESSION = 200;
const LOOK_EVERY_MS = 500;

/** Connections to apps that are open: so many per session, cut when their visitor is no longer welcome. */
export class OpenPreviews {
  private readonly open = new Set<Entry>();
  private readonly counts = new Map<string, number>();
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly reader: Pick<SessionReader, 'read'>,
    private readonly access: Pick<PreviewAccess, 'isWelcome'>,
    private readonly onFault: (fault: unknown) => void,
  ) {
    this.timer = setInterval(() => void this.look(), LOOK_EVERY_MS).unref();
  }

  /** Null when too many are open. */
  enter(sessionId: string, port: number, visitor: Visitor): HeldPreview | null {
    const count = this.counts.get(sessionId) ?? 0;
    if (count >= MAX_PER_SESSION) return null;
    const entry = { sessionId, port, visitor, over: new AbortController() };
    this.open.add(entry);
    this.counts.set(sessionId, count + 1);
    return { signal: entry.over.signal, leave: () => this.leave(entry) };
  }

  closeAll(): void {
    clearInterval(this.timer);
    for (const { over } of this.open) over.abort();
  }

  private leave(entry: Entry): void {
    if (!this.open.delete(entry)) return;
    const count = (this.counts.get(entry.sessionId) ?? 1) - 1;
    if (count === 0) this.counts.delete(entry.sessionId);
    else this.counts.set(entry.sessionId, count);
  }

  private async look(): Promise<void> {
    for (const sessionId of [...this.counts.keys()]) {
      try {
        const view = await this.reader.read(sessionId);
        for (const { port, visitor, over, ...entry } of this.open)
          if (entry.sessionId === sessionId && !this.access.isWelcome(visitor, view, port))
            over.abort();
      } catch (fault) {
        // The store is away: who is in stays in until it can be asked.
        this.onFault(fault);
      }
    }
  }
}
