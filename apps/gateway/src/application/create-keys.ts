import { randomUUID } from 'node:crypto';
import { type EventStore, type RecordedEvent, WrongRevision } from '@vmux/event-store';
import { Refusal, sessionIdOf } from '@vmux/events';
import type { SessionReader } from './session-reader';

const FORGOTTEN_AFTER_MS = 60_000;
const KEPT_SECONDS = 2 * 24 * 3600;

const streamOf = (key: string): string => `create-key-${key}`;

/**
 * A session's id holds its name, so the history of one name knows nothing of a key that was used for
 * another. A key that asks for a session is therefore bound to the name, on its own stream, before the
 * session is asked for.
 */
export class CreateKeys {
  constructor(
    private readonly store: EventStore,
    private readonly sessions: SessionReader,
    private readonly onFault: (fault: unknown) => void,
    private readonly now: () => number = Date.now,
  ) {}

  /** Throws when the key has made, or may be making, a session of another name. */
  async bind(key: string, owner: string, name: string): Promise<void> {
    for (let last: RecordedEvent | null = null; ; last = await this.lastOf(key)) {
      if (last && nameIn(last) === name) return;
      if (last && !(await this.isVoid(last, key, owner)))
        throw new Refusal('key_reused', 'this Idempotency-Key was used for another session', {});
      try {
        const bound = { id: randomUUID(), type: 'CreateKeyBound', data: { name, at: this.now() } };
        await this.store.append(streamOf(key), last?.revision ?? 'none', [
          { ...bound, metadata: { version: 1 } },
        ]);
        if (last === null) this.forgetInTime(key);
        return;
      } catch (fault) {
        if (!(fault instanceof WrongRevision)) throw fault;
      }
    }
  }

  /** As long as a session remembers its keys, and a day more. Losing this costs a little room. */
  private forgetInTime(key: string): void {
    const data = { $maxAge: KEPT_SECONDS };
    const metadata = { id: randomUUID(), type: '$metadata', data };
    this.store.append(`$$${streamOf(key)}`, 'any', [metadata]).catch(this.onFault);
  }

  /** A request that was refused binds nothing: a while later its name is free to be another. */
  private async isVoid(last: RecordedEvent, key: string, owner: string): Promise<boolean> {
    if (this.now() - timeIn(last) < FORGOTTEN_AFTER_MS) return false;
    const made = await this.sessions.read(sessionIdOf(nameIn(last), owner, key, 0));
    return made === null;
  }

  private async lastOf(key: string): Promise<RecordedEvent | null> {
    const options = { direction: 'backwards', limit: 1 } as const;
    for await (const event of this.store.read(streamOf(key), options)) return event;
    return null;
  }
}

function nameIn({ data }: RecordedEvent): string {
  return !Buffer.isBuffer(data) && typeof data.name === 'string' ? data.name : '';
}

const timeIn = ({ data }: RecordedEvent): number =>
  !Buffer.isBuffer(data) && typeof data.at === 'number' ? data.at : 0;
