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
import { Faults } from '../application/faults';
import { OutputIngest } from '../application/output-ingest';
import { ReportHandler } from '../application/reports';
import type { Serving } from './bus-server';

const control: Serving = { concurrency: 512 };
// Ingest decides how much is taken at once, fairly; a limit here would let one session fill it.
const output: Serving = { concurrency: 65_536 };

/** Who reports is what the subject says: NATS lets a runner use its own name only. */
@Controller()
export class ReportsController {
  constructor(
    @Inject(ReportHandler) private readonly reports: ReportHandler,
    @Inject(OutputIngest) private readonly ingest: OutputIngest,
    @Inject(Faults) private readonly faults: Faults,
  ) {}

  @MessagePattern(controlReportSubject('*'), control)
  async report(@Payload() { subject, data }: Incoming): Promise<ReportReply> {
    try {
      const { runnerId } = parseReportSubject(subject);
      return await this.reports.handle(parseReport(decodeJson(data), runnerId, Date.now()));
    } catch (fault) {
      return this.faults.replyTo(fault, subject);
    }
  }

  @MessagePattern(outputReportSubject('*'), output)
  async output(@Payload() { subject, data }: Incoming): Promise<OutputReply> {
    try {
      const { runnerId } = parseReportSubject(subject);
      return await this.ingest.take(decodeOutput(data, runnerId));
    } catch (fault) {
      return this.faults.replyTo(fault, subject);
    }
  }
}
