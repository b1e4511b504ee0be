import { HEARTBEAT_SUBJECTS, type Heartbeat, type Making, parseHeartbeat } from '@vmux/events';
import { type Bus, decodeJson } from '@vmux/messaging';

export interface RunnerStanding {
  readonly heartbeat: Heartbeat;
  readonly heardAt: number;
  readonly alive: boolean;
}

/** A sandbox that somebody waits for; lists know only the session. */
interface Awaited {
  readonly sessionId: string;
  readonly epoch?: number;
  readonly runnerId?: string;
}

const ALIVE_MS = 15_000;
const FORGOTTEN_MS = 3600_000;
const MAX_RUNNERS = 1000;

/** What runners last said about themselves. Never more than a hint. */
export class RunnerBoard {
  private readonly heard = new Map<string, { heartbeat: Heartbeat; heardAt: number }>();

  constructor(private readonly now: () => number = Date.now) {}

  listen(bus: Bus, onFault: (fault: unknown) => void): void {
    bus.serve(HEARTBEAT_SUBJECTS, {}, async ({ subject, data }) => {
      try {
        const runnerId = subject.split('.').at(-1) ?? '';
        this.take(parseHeartbeat(decodeJson(data), runnerId));
      } catch (fault) {
        onFault(fault);
      }
      return undefined;
    });
  }

  take(heartbeat: Heartbeat): void {
    if (!this.heard.has(heartbeat.runnerId) && this.heard.size >= MAX_RUNNERS) return;
    this.heard.set(heartbeat.runnerId, { heartbeat, heardAt: this.now() });
  }

  /** Whether whoever offers the provider only acts as if it were it; while nobody does, who did so last. */
  isEmulated(provider: string): boolean {
    const offers = this.list().flatMap(({ alive, heartbeat }) =>
      heartbeat.providers
        .filter((each) => each.provider === provider)
        .map(({ emulated }) => ({ alive, emulated })),
    );
    const now = offers.filter(({ alive }) => alive);
    return (now.length > 0 ? now : offers).some(({ emulated }) => emulated);
  }

  /** How far a session's next sandbox has come, by the word of whoever makes it. */
  makingOf({ sessionId, epoch, runnerId }: Awaited): Making | null {
    for (const { alive, heartbeat } of this.list()) {
      if (!alive || (runnerId !== undefined && heartbeat.runnerId !== runnerId)) continue;
      const found = heartbeat.making?.find(
        (each) => each.sessionId === sessionId && (epoch === undefined || each.epoch === epoch),
      );
      if (found) return found;
    }
    return null;
  }

  list(): readonly RunnerStanding[] {
    const now = this.now();
    for (const [id, { heardAt }] of this.heard)
      if (now - heardAt > FORGOTTEN_MS) this.heard.delete(id);
    return [...this.heard.values()].map((each) => ({
      ...each,
      alive: now - each.heardAt <= ALIVE_MS,
    }));
  }
}
