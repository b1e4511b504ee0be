import { Inject, Injectable } from '@nestjs/common';
import type { Failed, Refused } from '@vmux/events';
import type { Incoming } from '@vmux/messaging';
import { Faults } from '../application/faults';
import { Metrics } from './metrics';

type Kind = 'command' | 'report' | 'output';

/** The one way from a message to its answer: whatever goes wrong on it, the peer is told. */
@Injectable()
export class Answering {
  constructor(
    @Inject(Faults) private readonly faults: Faults,
    @Inject(Metrics) private readonly metrics: Metrics,
  ) {}

  async answer<R extends { readonly ok: true } | Refused | Failed>(
    kind: Kind,
    { subject, data }: Incoming,
    handle: (data: Uint8Array, subject: string) => Promise<R>,
  ): Promise<R | Refused | Failed> {
    const end = this.metrics.requests.startTimer({ kind });
    const reply = await this.settled(subject, () => handle(data, subject));
    end({ outcome: outcomeOf(reply) });
    return reply;
  }

  private async settled<R>(subject: string, work: () => Promise<R>): Promise<R | Refused | Failed> {
    try {
      return await work();
    } catch (fault) {
      return this.faults.replyTo(fault, subject);
    }
  }
}

const outcomeOf = (reply: { readonly ok: true } | Refused | Failed): string => {
  if (reply.ok) return 'accepted';
  return 'refused' in reply ? reply.refused.code : reply.failed.code;
};
