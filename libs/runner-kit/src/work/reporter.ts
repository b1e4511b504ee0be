import {
  accepted,
  controlReportSubject,
  encodeOutput,
  Failure,
  type OutputAccepted,
  type OutputMessage,
  type OutputReply,
  outputReportSubject,
  Refusal,
  type ReportMessage,
  type ReportReply,
} from '@vmux/events';
import { type Bus, BusTimeout, BusUnavailable, decodeJson, encodeJson } from '@vmux/messaging';
import { pause } from './pause';

const requestTimeoutMs = 10_000;
const firstPauseMs = 20;
const longestPauseMs = 2_000;

/**
 * Says what happened until it is answered. What it reports is on the sandbox's disk, so nothing is lost
 * by waiting: only an acceptance, which means durable, or a refusal ends the trying.
 */
export class Reporter {
  constructor(
    private readonly bus: Bus,
    private readonly runnerId: string,
    private readonly onRetry: (reason: string) => void,
  ) {}

  /** Returns when the report is in the history; throws `Refusal` when it never will be. */
  async report(message: ReportMessage, signal: AbortSignal): Promise<void> {
    const data = encodeJson(message);
    await this.untilAnswered(signal, async () => {
      const reply = await this.bus.request(controlReportSubject(this.runnerId), data, {
        timeoutMs: requestTimeoutMs,
      });
      return accepted(decodeJson(reply) as ReportReply);
    });
  }

  /** Returns what is durable now; the rest of the frame may have been refused. */
  async output(message: OutputMessage, signal: AbortSignal): Promise<OutputAccepted> {
    const data = encodeOutput(message);
    return this.untilAnswered(signal, async () => {
      const reply = await this.bus.request(outputReportSubject(this.runnerId), data, {
        timeoutMs: requestTimeoutMs,
      });
      return accepted(decodeJson(reply) as OutputReply);
    });
  }

  private async untilAnswered<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
      signal.throwIfAborted();
      try {
        return await ask();
      } catch (error) {
        if (error instanceof Refusal) throw error;
        if (!isPassing(error)) throw error;
        this.onRetry(error.message);
        const asked = error instanceof Failure ? error.retryAfterMs : null;
        await pause(asked ?? pauseMs, signal);
      }
    }
  }
}

const isPassing = (error: unknown): error is BusTimeout | BusUnavailable | Failure =>
  error instanceof BusTimeout || error instanceof BusUnavailable || error instanceof Failure;
