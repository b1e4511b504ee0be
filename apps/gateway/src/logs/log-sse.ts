import type { LogItem } from '../application/log-cursor';
import type { SseEvent } from '../http/sse';

/** How log items look as server-sent events: the id is all that a reader needs to resume. */
export function sseOf(item: LogItem): SseEvent {
  switch (item.kind) {
    case 'bytes': {
      const { execId: exec, stream, offset, at, bytes, revision } = item;
      const b64 = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('base64');
      return {
        id: idOf(offset + bytes.length, revision),
        data: { exec, stream, offset, at: new Date(at).toISOString(), b64 },
      };
    }
    case 'gap': {
      const { execId: exec, stream, from, to, reason, revision } = item;
      return { event: 'gap', id: idOf(to, revision), data: { exec, stream, from, to, reason } };
    }
    case 'resize': {
      const { execId: exec, offset, cols, rows } = item;
      return { event: 'resize', data: { exec, offset, cols, rows } };
    }
  }
}

const idOf = (offset: number, revision: number): string => `${offset}@${revision}`;

export interface ResumePoint {
  readonly offset: number;
  readonly revision: number;
}

/** Null for an id that is not ours. */
export function resumePointOf(id: string | undefined): ResumePoint | null {
  const [, offset, revision] = /^(\d{1,15})@(\d{1,15})$/.exec(id ?? '') ?? [];
  return offset && revision ? { offset: Number(offset), revision: Number(revision) } : null;
}
