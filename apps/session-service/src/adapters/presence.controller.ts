import { Controller, Inject } from '@nestjs/common';
import { MessagePattern, Payload } from '@nestjs/microservices';
import {
  HEARTBEAT_SUBJECTS,
  parseHeartbeat,
  parsePresence,
  SERVICE_PRESENCE_SUBJECT,
} from '@vmux/events';
import { decodeJson, type Incoming } from '@vmux/messaging';
import { Faults } from '../application/faults';
import { Orders } from '../application/orders';
import { Peers } from '../application/peers';
import { Runners } from '../application/runners';
import type { Serving } from './bus-server';

const everyone: Serving = { everyone: true };

/** Who is there: runners and the other session services. Hints, heard by every process. */
@Controller()
export class PresenceController {
  constructor(
    @Inject(Runners) private readonly runners: Runners,
    @Inject(Peers) private readonly peers: Peers,
    @Inject(Orders) private readonly orders: Orders,
    @Inject(Faults) private readonly faults: Faults,
  ) {}

  @MessagePattern(HEARTBEAT_SUBJECTS, everyone)
  heartbeat(@Payload() { subject, data }: Incoming): null {
    try {
      const heartbeat = parseHeartbeat(decodeJson(data), subject.split('.').at(-1) ?? '');
      if (this.runners.hear(heartbeat)) this.orders.runnerAppeared(heartbeat.runnerId);
    } catch (fault) {
      this.faults.replyTo(fault, subject);
    }
    return null;
  }

  @MessagePattern(SERVICE_PRESENCE_SUBJECT, everyone)
  presence(@Payload() { subject, data }: Incoming): null {
    try {
      const { instance, leaving } = parsePresence(decodeJson(data));
      if (leaving) this.peers.leave(instance);
      else this.peers.hear(instance);
    } catch (fault) {
      this.faults.replyTo(fault, subject);
    }
    return null;
  }
}
