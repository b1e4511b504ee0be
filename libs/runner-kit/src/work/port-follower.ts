import type { ReportMessage } from '@vmux/events';
import type { SupervisorClient } from '../supervisor-client';

export type PortReport = {
  [T in 'PortOpened' | 'PortClosed']: Pick<
    Extract<ReportMessage, { readonly type: T }>,
    'type' | 'data' | 'at'
  >;
}['PortOpened' | 'PortClosed'];

/** Tells the history of listening ports, one change at a time, in order. */
export async function followPorts(
  client: SupervisorClient,
  signal: AbortSignal,
  report: (report: PortReport) => Promise<void>,
): Promise<void> {
  for await (const item of client.ports({ signal })) {
    if (item.kind !== 'port') continue;
    const { port, open, loopbackOnly } = item.notice;
    const at = Date.now();
    const address = loopbackOnly ? '127.0.0.1' : '0.0.0.0';
    await report(
      open
        ? { type: 'PortOpened', at, data: { port, address, execId: null } }
        : { type: 'PortClosed', at, data: { port } },
    );
  }
}
