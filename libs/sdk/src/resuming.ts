import { errorFrom, VmuxError } from './errors';
import { pause, pauseBefore } from './pause';
import type { SseMessage } from './sse';
import type { Request, Vmux } from './vmux';

/**
 * Server-sent events over as many connections as it takes, until the stream says that it is over. Each
 * connection goes on after the last id seen. Gives up when no connection came about for as long as a
 * call would be tried again.
 */
export async function* resumingEvents(
  vmux: Vmux,
  path: string,
  { query, signal }: Pick<Request, 'query' | 'signal'>,
): AsyncGenerator<SseMessage> {
  let lastId: string | null = null;
  let failingSince: number | null = null;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const headers: Record<string, string> = lastId === null ? {} : { 'last-event-id': lastId };
      const onOpen = () => {
        failingSince = null;
      };
      for await (const message of vmux.events(path, { query, headers, signal }, onOpen)) {
        if (message.event === 'error') throw errorFrom(message.data, 0);
        attempt = 0;
        if (message.id !== null) lastId = message.id;
        yield message;
        if (message.event === 'end') return;
      }
      // Neither an end nor a fault: a gateway that is stopped lets go of its readers so.
    } catch (fault) {
      signal?.throwIfAborted();
      if (!(fault instanceof VmuxError && fault.retryable)) throw fault;
      failingSince ??= Date.now();
      if (Date.now() - failingSince >= vmux.retryForMs) throw fault;
    }
    await pause(pauseBefore(attempt), signal);
  }
}
