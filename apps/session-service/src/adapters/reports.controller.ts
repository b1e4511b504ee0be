import { Controller, Inject } from '@nestjs/common';
import { MessagePattern, Payload } from '@nestjs/microservices';
import {
  controlReportSubject,
  decodeOutput,
  type OutputReply,
  outputReportSubject,
  parseReport,
  parseReportSubject,
  type ReportReply,
} from '@vmux/events';
import { decodeJson, type Incoming } from '@vmux/messaging';
import { OutputIngest } from '../application/output-ingest';
import { ReportHandler } from '../application/reports';
import { Answering } from './answering';
import type { Serving } from './bus-server';
import { Metrics } from './metrics';

const control: Serving = { concurrency: 512 };
// Ingest decides how much is taken at once, fairly; a limit here would let one session fill it.
const output: Serving = { concurrency: 65_536 };

/** Who reports is what the subject says: NATS lets a runner use its own name only. */
@Controller()
export class ReportsController {
  constructor(
    @Inject(Answering) private readonly answering: Answering,
    @Inject(ReportHandler) private readonly reports: ReportHandler,
    @Inject(OutputIngest) private readonly ingest: OutputIngest,
    @Inject(Metrics) private readonly metrics: Metrics,
  ) {}

  @MessagePattern(controlReportSubject('*'), control)
  report(@Payload() message: Incoming): Promise<ReportReply> {
    return this.answering.answer('report', message, async (data, subject) => {
      const { runnerId } = parseReportSubject(subject);
      const report = parseReport(decodeJson(data), runnerId, Date.now());
      return this.reports.handle(report, message.trace);
    });
  }

  @MessagePattern(outputReportSubject('*'), output)
  output(@Payload() message: Incoming): Promise<OutputReply> {
    return this.answering.answer('output', message, async (data, subject) => {
      const { runnerId } = parseReportSubject(subject);
      this.metrics.outputBytes.inc(data.length);
      return this.ingest.take(decodeOutput(data, runnerId));
    });
  }
}
