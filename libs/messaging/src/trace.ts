/**
 * Travels with a request through every process it causes work in, and ends in event metadata. Handed on
 * as an argument: a context that follows promises by itself makes every promise dearer.
 */
export interface TraceContext {
  readonly requestId: string;
  /** W3C trace context. */
  readonly traceparent?: string;
}

const requestIdForm = /^[\w.-]{1,128}$/;
const traceparentForm = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** What a client or a peer sent as trace context, or nothing where it is not well formed. */
export function traceFrom(requestId?: string, traceparent?: string): TraceContext | undefined {
  if (!requestId || !requestIdForm.test(requestId)) return undefined;
  return traceparent && traceparentForm.test(traceparent)
    ? { requestId, traceparent }
    : { requestId };
}
