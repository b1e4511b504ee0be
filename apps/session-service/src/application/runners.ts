import type { Capability, Heartbeat, Placement } from '@vmux/events';

/** Longer than three heartbeats. */
const FRESH_MS = 10_000;

interface Heard {
  readonly heartbeat: Heartbeat;
  readonly heardAt: number;
  /** Sandboxes sent there since, which the heartbeat does not count yet. */
  readonly placedSince: number;
}

export interface Wanted {
  readonly provider: string;
  readonly capabilities: readonly Capability[];
  /** None but those of this pool. */
  readonly pool?: string;
  /** Not this one: a move goes elsewhere. */
  readonly except?: string;
  /** This one, if it has room: it has at hand what the sandbox begins with. */
  readonly rather?: string;
  /** One of this pool, if any has room: they all have it at hand. */
  readonly ratherOf?: string;
}

/** The runners that this process hears. A hint for placement, never a fact about a session. */
export class Runners {
  private readonly heard = new Map<string, Heard>();

  constructor(
    private readonly now: () => number,
    private deafUntil: number = now(),
  ) {}

  /** True when it was not there a moment ago, or is another process by the same name. */
  hear(heartbeat: Heartbeat): boolean {
    const known = this.heard.get(heartbeat.runnerId);
    this.heard.set(heartbeat.runnerId, { heartbeat, heardAt: this.now(), placedSince: 0 });
    if (!known || !this.isFresh(known)) return true;
    return known.heartbeat.incarnation !== heartbeat.incarnation;
  }

  /** This process hears nobody now: silence says nothing about runners. */
  deaf(): void {
    this.deafUntil = this.now();
  }

  /** Null while it is heard. Nothing is known of the time before this process listened. */
  unreachableSince(runnerId: string): number | null {
    const known = this.heard.get(runnerId);
    if (known && this.isFresh(known)) return null;
    return Math.max(known?.heardAt ?? 0, this.deafUntil);
  }

  /** Whether anybody is there for it, even if there is no room now. */
  isOffered(wanted: string): boolean {
    return [...this.heard.values()].some(
      (heard) =>
        this.isFresh(heard) &&
        heard.heartbeat.providers.some(
          ({ provider, available }) => available && provider === wanted,
        ),
    );
  }

  /** The one that would rather be taken, or else the one with the most room; null when none fits. */
  find(wanted: Wanted): Placement | null {
    const holder = wanted.rather === undefined ? undefined : this.heard.get(wanted.rather);
    const there = holder && this.isFresh(holder) ? fits(holder, wanted) : null;
    if (there) return there;
    const { ratherOf, ...anywhere } = wanted;
    const near = ratherOf === undefined ? null : this.find({ ...anywhere, pool: ratherOf });
    if (near) return near;
    let best: { heard: Heard; placement: Placement; room: number } | null = null;
    for (const heard of this.heard.values()) {
      const placement = this.isFresh(heard) ? fits(heard, wanted) : null;
      if (!placement) continue;
      const room = roomOf(heard);
      if (!best || room > best.room || (room === best.room && comesFirst(heard, best.heard)))
        best = { heard, placement, room };
    }
    return best?.placement ?? null;
  }

  /** The same, counting on it that a sandbox goes there. */
  place(wanted: Wanted): Placement | null {
    const placement = this.find(wanted);
    const heard = placement && this.heard.get(placement.runnerId);
    if (heard) this.heard.set(placement.runnerId, { ...heard, placedSince: heard.placedSince + 1 });
    return placement;
  }

  /** Who can take over a sandbox whose runner is silent. */
  successorOf({ provider, pool, runnerId }: Placement): Placement | null {
    return pool === undefined
      ? null
      : this.find({ provider, pool, capabilities: [], except: runnerId });
  }

  /** All that were heard of, whether they are there now or not. */
  get ids(): readonly string[] {
    return [...this.heard.keys()];
  }

  /** Those not heard for a day. */
  forgetSilent(): void {
    for (const [runnerId, { heardAt }] of this.heard)
      if (this.now() - heardAt > 24 * 3600 * 1000) this.heard.delete(runnerId);
  }

  private isFresh({ heardAt }: Heard): boolean {
    return this.now() - heardAt <= FRESH_MS;
  }
}

function fits({ heartbeat, placedSince }: Heard, wanted: Wanted): Placement | null {
  const offer = heartbeat.providers.find(
    ({ provider, available }) => available && provider === wanted.provider,
  );
  if (!offer || heartbeat.draining || heartbeat.runnerId === wanted.except) return null;
  if (!wanted.capabilities.every((capability) => offer.capabilities.includes(capability)))
    return null;
  if (heartbeat.capacity.sandboxes + placedSince >= heartbeat.capacity.maxSandboxes) return null;
  const { runnerId } = heartbeat;
  const { provider, capabilities, pool } = offer;
  if (wanted.pool !== undefined && wanted.pool !== pool) return null;
  return { runnerId, provider, capabilities, ...(pool === undefined ? {} : { pool }) };
}

const roomOf = ({ heartbeat, placedSince }: Heard): number => {
  const { sandboxes, maxSandboxes } = heartbeat.capacity;
  return (maxSandboxes - sandboxes - placedSince) / maxSandboxes;
};

const comesFirst = (one: Heard, other: Heard): boolean => {
  const [mine, theirs] = [one.heartbeat, other.heartbeat];
  if (mine.capacity.load !== theirs.capacity.load) return mine.capacity.load < theirs.capacity.load;
  return mine.runnerId < theirs.runnerId;
};
