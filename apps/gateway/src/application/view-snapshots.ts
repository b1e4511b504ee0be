import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { deflate, inflate } from 'node:zlib';
import { type EventStore, type RecordedEvent, StreamNotFound } from '@vmux/event-store';
import { eventIdOf, sessionStream, viewStream } from '@vmux/events';
import { fromPlain, plainOf } from './plain-json';
import type { SessionView } from './session-view';

const TYPE = 'SessionViewed';
const MAX_PART_BYTES = 512 * 1024;
const MAX_PARTS = 64;
const MAX_EXPANDED_BYTES = 512 * 1024 * 1024;

const compressed = promisify(deflate);
const expanded = promisify(inflate);

/** Of the code that folds: what another version folded is not taken for this one's. */
const FOLD_VERSION = createHash('sha256')
  .update('1')
  .update(
    ['./session-view', './sandbox-view', './exec-view', './checkpoint-view']
      .map((name) => readFileSync(require.resolve(name)))
      .join('\n'),
  )
  .digest('base64url')
  .slice(0, 16);

export interface ViewSnapshot {
  readonly view: SessionView;
  /** Of the event at the view's revision: the same place in another history is another event. */
  readonly eventId: string;
}

/**
 * Views of long histories, kept beside them so that a gateway that starts need not fold them from their
 * first event. A cache that any gateway writes and reads: anything odd is ignored.
 */
export class ViewSnapshots {
  constructor(private readonly store: EventStore) {}

  async find(sessionId: string): Promise<ViewSnapshot | null> {
    const parts = await this.lastParts(viewStream(sessionId));
    const { revision, eventId } = parts[0]?.metadata ?? {};
    if (typeof eventId !== 'string') return null;
    const data = Buffer.concat(parts.map((part) => part.data as Buffer));
    const options = { maxOutputLength: MAX_EXPANDED_BYTES };
    const text = (await expanded(data, options)).toString('utf8');
    const view = fromPlain(JSON.parse(text)) as SessionView;
    return view.id === sessionId && view.revision === revision ? { view, eventId } : null;
  }

  /** What it looks like now; it may change while it is being written. */
  async keep({ view, eventId }: ViewSnapshot): Promise<void> {
    const { id, revision } = view;
    const data = await compressed(JSON.stringify(plainOf(view)), { level: 1 });
    const parts = Math.ceil(data.length / MAX_PART_BYTES);
    if (parts > MAX_PARTS) throw new Error(`the view of ${id} is too large to keep`);
    const stream = viewStream(id);
    await this.metadata(stream, { $maxCount: parts });
    for (let part = 0; part < parts; part += 1)
      await this.store.append(stream, 'any', [
        {
          id: eventIdOf(stream, revision, FOLD_VERSION, part),
          type: TYPE,
          data: data.subarray(part * MAX_PART_BYTES, (part + 1) * MAX_PART_BYTES),
          metadata: { foldVersion: FOLD_VERSION, revision, eventId, part, parts },
        },
      ]);
    await this.dropIfDeleted(id);
  }

  /** Whoever erases a deleted session after this look sees what was kept before it. */
  private async dropIfDeleted(sessionId: string): Promise<void> {
    const head = await this.lastOf(sessionStream(sessionId));
    if (head?.type !== 'SessionDeleted') return;
    const last = await this.lastOf(viewStream(sessionId));
    if (last) await this.metadata(viewStream(sessionId), { $tb: last.revision + 1 });
  }

  private async metadata(stream: string, data: Readonly<Record<string, number>>): Promise<void> {
    const known = await this.lastOf(`$$${stream}`);
    if (JSON.stringify(known?.data) === JSON.stringify(data)) return;
    const id = eventIdOf(stream, (known?.revision ?? -1) + 1, JSON.stringify(data), 0);
    await this.store.append(`$$${stream}`, 'any', [{ id, type: '$metadata', data }]);
  }

  /** Those of the last snapshot, in order, or none when they are not all there. */
  private async lastParts(stream: string): Promise<readonly RecordedEvent[]> {
    const last = await this.lastOf(stream);
    const { parts, revision } = last?.metadata ?? {};
    if (!last || typeof parts !== 'number' || parts > MAX_PARTS) return [];
    const found: RecordedEvent[] = [];
    const options = { from: last.revision, direction: 'backwards', limit: parts } as const;
    for await (const event of this.store.read(stream, options)) found.unshift(event);
    const whole = found.every(
      ({ type, data, metadata }, index) =>
        type === TYPE &&
        Buffer.isBuffer(data) &&
        metadata.foldVersion === FOLD_VERSION &&
        metadata.revision === revision &&
        metadata.part === index,
    );
    return whole && found.length === parts ? found : [];
  }

  private async lastOf(stream: string): Promise<RecordedEvent | null> {
    try {
      const options = { direction: 'backwards', limit: 1 } as const;
      for await (const event of this.store.read(stream, options)) return event;
    } catch (fault) {
      if (!(fault instanceof StreamNotFound)) throw fault;
    }
    return null;
  }
}
