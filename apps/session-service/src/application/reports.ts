import type { Report, ReportAccepted } from '@vmux/events';
import type { TraceContext } from '@vmux/messaging';
import type { Changes } from './changes';

/** Takes a runner's report into the history. Acknowledged after the append, so a crash redelivers it. */
export class ReportHandler {
  constructor(private readonly changes: Changes) {}

  async handle(report: Report, trace?: TraceContext): Promise<ReportAccepted> {
    const { after } = await this.changes.report(report, trace);
    return { ok: true, revision: after.session.revision };
  }
}
