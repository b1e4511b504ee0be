export interface SseMessage {
  readonly event: string;
  readonly id: string | null;
  readonly data: unknown;
}

const maxBlockChars = 4 * 1024 * 1024;

/** Server-sent events as the gateway writes them: one `data` line of JSON each. */
export async function* sseMessages(body: AsyncIterable<Uint8Array>): AsyncGenerator<SseMessage> {
  const decoder = new TextDecoder();
  let waiting = '';
  for await (const piece of body) {
    waiting += decoder.decode(piece, { stream: true });
    let from = 0;
    for (let end = waiting.indexOf('\n\n'); end >= 0; end = waiting.indexOf('\n\n', from)) {
      const message = messageOf(waiting.slice(from, end));
      from = end + 2;
      if (message) yield message;
    }
    waiting = waiting.slice(from);
    if (waiting.length > maxBlockChars) throw new Error('an event has no end');
  }
}

/** Null for comments, which only keep the connection alive. */
function messageOf(block: string): SseMessage | null {
  let event = 'message';
  let id: string | null = null;
  let data: string | null = null;
  for (const line of block.split('\n')) {
    const at = line.indexOf(':');
    if (at <= 0) continue;
    const value = line.slice(line[at + 1] === ' ' ? at + 2 : at + 1);
    const field = line.slice(0, at);
    if (field === 'event') event = value;
    if (field === 'id') id = value;
    if (field === 'data') data = value;
  }
  return data === null ? null : { event, id, data: JSON.parse(data) as unknown };
}
