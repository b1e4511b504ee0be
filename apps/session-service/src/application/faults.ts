import { AppendTooLarge, StoreRefused, StoreUnavailable } from '@vmux/event-store';
import {
  type Failed,
  Failure,
  Malformed,
  Refusal,
  type Refused,
  replyOf,
  UnknownEvent,
} from '@vmux/events';
import { MalformedMessage } from '@vmux/messaging';
import type { Log } from './log';
import type { Readiness } from './readiness';

/** What is said to whoever asked, when it went wrong: a refusal, or a failure and whether to try again. */
export class Faults {
  constructor(
    private readonly readiness: Readiness,
    private readonly log: Log,
  ) {}

  replyTo(fault: unknown, subject: string): Refused | Failed {
    const known = this.named(fault);
    if (!(known instanceof Refusal || known instanceof Failure))
      this.log.error({ subject, fault }, 'a request could not be handled');
    return replyOf(known);
  }

  private named(fault: unknown): unknown {
    if (fault instanceof Malformed || fault instanceof MalformedMessage)
      return new Refusal('malformed', fault.message);
    if (fault instanceof AppendTooLarge)
      return new Refusal('malformed', `it is larger than ${fault.maxBytes} bytes: leave some out`);
    if (fault instanceof StoreUnavailable)
      return new Failure('store_unavailable', fault.message, true, 1000, { cause: fault });
    if (fault instanceof StoreRefused && fault.reason === 'no_space')
      return new Failure('no_space', 'the event store has no room left', true, 5000);
    if (fault instanceof UnknownEvent) {
      this.notUnderstood(fault);
      return new Failure('unknown_event', fault.message, true, 5000, { cause: fault });
    }
    return fault;
  }

  /** This process is older than the history: another has to decide. */
  notUnderstood(fault: UnknownEvent): void {
    this.readiness.set('history', fault.message);
    this.log.error({ type: fault.type, version: fault.version }, fault.message);
  }
}
