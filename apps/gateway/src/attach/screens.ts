import type { EventStore } from '@vmux/event-store';
import type { ExecView } from '../application/exec-view';
import type { ExecWaiting } from '../application/exec-waiting';
import { LogIndex } from '../application/log-index';
import type { LogReader } from '../application/log-reader';
import type { Size } from './frames';
import { Screen } from './screen';

export interface Painted {
  /** Of the first byte of output that is not in it. */
  readonly offset: number;
  readonly size: Size;
  readonly bytes: Buffer;
}

interface Kept {
  readonly screen: Screen;
  offset: number;
  work: Promise<unknown>;
  /** By scrollback: what was asked for and is not begun, for everybody who asks meanwhile. */
  readonly coming: Map<number, Promise<Painted>>;
}

/** Never more of a log than this is replayed for one screen. */
export const MAX_REPLAY_BYTES = 8 * 1024 * 1024;
/** Of all screens together; a cell takes about 12 bytes. */
const MAX_KEPT_CELLS = 8_000_000;
const SIZE_LOOKBACK_EVENTS = 1024;
const DEFAULT_SIZE: Size = { cols: 80, rows: 24 };
const CANCEL = Buffer.from([0x18]);

/**
 * How terminals look, computed from their logs. Those that were looked at lately are kept where they
 * stand and brought up to date; all of them can be forgotten at any time.
 */
export class Screens {
  private readonly kept = new Map<string, Kept>();
  private readonly index: LogIndex;

  constructor(
    store: EventStore,
    private readonly logs: LogReader,
    private readonly execs: ExecWaiting,
    private readonly maxReplayBytes = MAX_REPLAY_BYTES,
  ) {
    this.index = new LogIndex(store);
  }

  /** As of now: everything that the log has when this is called is in it. */
  async paint(sessionId: string, exec: ExecView, scrollback: number): Promise<Painted> {
    const kept = await this.keptOf(sessionId, exec);
    const coming = kept.coming.get(scrollback);
    if (coming) return coming;
    const work = kept.work.then(async () => {
      kept.coming.delete(scrollback);
      await this.catchUp(kept, sessionId, exec);
      const { screen, offset } = kept;
      return { offset, size: screen.size, bytes: screen.repaint(scrollback) };
    });
    // A read that failed left the screen where it had come to: the next one goes on from there.
    kept.work = work.catch(() => undefined);
    kept.coming.set(scrollback, work);
    return work;
  }

  close(): void {
    this.kept.clear();
  }

  private async keptOf(sessionId: string, exec: ExecView): Promise<Kept> {
    const key = `${sessionId}/${exec.id}`;
    const spec = this.kept.has(key) ? null : await this.execs.specOf(sessionId, exec);
    const known = this.kept.get(key);
    // The map is in order of use: the first is the one that was not needed for longest.
    this.kept.delete(key);
    const kept = known ?? {
      screen: new Screen(spec?.pty ?? DEFAULT_SIZE),
      offset: 0,
      work: Promise.resolve(),
      coming: new Map(),
    };
    this.kept.set(key, kept);
    this.evict(key);
    return kept;
  }

  /** Whatever is left of one that is in use goes with its last user. */
  private evict(wanted: string): void {
    let cells = 0;
    for (const { screen } of this.kept.values()) cells += screen.cells;
    for (const [key, { screen }] of this.kept) {
      if (cells <= MAX_KEPT_CELLS || key === wanted) return;
      cells -= screen.cells;
      this.kept.delete(key);
    }
  }

  private async catchUp(kept: Kept, sessionId: string, exec: ExecView): Promise<void> {
    const target = { kind: 'stream', exec, stream: 'pty' } as const;
    const bounds = await this.index.bounds(sessionId);
    if (!bounds) return;
    const size = exec.sizes?.pty ?? (await this.index.sizeOf(sessionId, target, bounds));
    if (size - kept.offset > this.maxReplayBytes) {
      await kept.screen.write(CANCEL);
      kept.offset = size - this.maxReplayBytes;
      const before = await this.sizeBefore(sessionId, exec, kept.offset, bounds);
      if (before) kept.screen.resize(before);
    }
    const { signal } = new AbortController();
    const { offset } = kept;
    const items = await this.logs.open({ sessionId, target, offset, follow: false, signal });
    for await (const item of items) {
      if (item.kind === 'resize') kept.screen.resize(item);
      if (item.kind === 'gap') kept.offset = item.to;
      if (item.kind !== 'bytes') continue;
      await kept.screen.write(item.bytes);
      kept.offset = item.offset + item.bytes.length;
    }
  }

  /** The last size that the log tells of before an offset, if that was not long before. */
  private async sizeBefore(
    sessionId: string,
    exec: ExecView,
    offset: number,
    bounds: { first: number; last: number },
  ): Promise<Size | null> {
    const target = { kind: 'stream', exec, stream: 'pty' } as const;
    const { revision, within } = await this.index.startOf(sessionId, target, offset, bounds);
    const until = revision + within;
    const from = Math.max(bounds.first, until - SIZE_LOOKBACK_EVENTS);
    let size: Size | null = null;
    for await (const { event } of this.index.read(sessionId, from, until - from + 1)) {
      if (event?.type !== 'TerminalResized' || event.execId !== exec.id) continue;
      if (event.offset <= offset) size = { cols: event.cols, rows: event.rows };
    }
    return size;
  }
}
