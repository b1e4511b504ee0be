import { AsyncQueue } from './async-queue';
import { ProtocolViolation } from './errors';
import { type ExecState, type PortNotice, readExec, readOk, readPort } from './supervisor-answers';
import type { SupervisorConnection } from './supervisor-connection';
import { outOfPlace } from './supervisor-requests';
import { BodyWriter, FRAME, type Frame } from './wire';

export type WatchItem =
  | { readonly kind: 'exec'; readonly exec: ExecState }
  /** Everything that was so when the watch began has been told. */
  | { readonly kind: 'caughtUp' };

export type PortItem =
  | { readonly kind: 'port'; readonly notice: PortNotice }
  | { readonly kind: 'caughtUp' };

/** More different subjects than a supervisor can have: only a hostile one tells of more. */
const MAX_WAITING = 70_000;

export const watchExecs = (
  connection: SupervisorConnection,
  follow: boolean,
  signal?: AbortSignal,
): AsyncGenerator<WatchItem> =>
  watch<WatchItem>(connection, {
    name: 'WATCH',
    request: FRAME.watch,
    notice: FRAME.exec,
    follow,
    signal,
    read: (frame) => {
      const exec = readExec(frame);
      return { key: exec.execId, item: { kind: 'exec', exec } };
    },
  });

export const watchPorts = (
  connection: SupervisorConnection,
  follow: boolean,
  signal?: AbortSignal,
): AsyncGenerator<PortItem> =>
  watch<PortItem>(connection, {
    name: 'PORTS',
    request: FRAME.ports,
    notice: FRAME.port,
    follow,
    signal,
    read: (frame) => {
      const notice = readPort(frame);
      return { key: notice.port, item: { kind: 'port', notice } };
    },
  });

interface Watched<Item> {
  readonly name: string;
  readonly request: number;
  readonly notice: number;
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
  read(frame: Frame): { key: string | number; item: Item };
}

/**
 * These answers carry no credit, so what waits here is kept by subject: a later notice takes the place of
 * an earlier one that was not read yet.
 */
async function* watch<Item extends { readonly kind: string }>(
  connection: SupervisorConnection,
  watched: Watched<Item>,
): AsyncGenerator<Item | { readonly kind: 'caughtUp' }> {
  const { signal } = watched;
  signal?.throwIfAborted();
  const latest = new Map<string | number, Item>();
  let caughtUp = false;
  const tell = new AsyncQueue<{ key: string | number } | 'caughtUp'>();
  const id = connection.request(
    {
      onFrame: (frame) => {
        if (frame.type === FRAME.ok && !caughtUp) {
          readOk(frame);
          caughtUp = true;
          tell.push('caughtUp');
          if (watched.follow) return false;
          tell.end();
          return true;
        }
        if (frame.type !== watched.notice) throw outOfPlace(frame, watched.name);
        const { key, item } = watched.read(frame);
        if (!latest.has(key)) tell.push({ key });
        latest.set(key, item);
        if (latest.size > MAX_WAITING) throw new ProtocolViolation(`${watched.name}: too many`);
        return false;
      },
      onFault: (fault) => tell.fail(fault),
    },
    (number) => new BodyWriter().u8(watched.follow ? 1 : 0).frame(watched.request, number),
  );
  const abort = () => tell.fail(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    for (let next = await tell.next(); next !== undefined; next = await tell.next()) {
      signal?.throwIfAborted();
      if (next === 'caughtUp') {
        yield { kind: 'caughtUp' };
        continue;
      }
      const item = latest.get(next.key);
      latest.delete(next.key);
      if (item) yield item;
    }
  } finally {
    signal?.removeEventListener('abort', abort);
    connection.abandon(id);
  }
}
