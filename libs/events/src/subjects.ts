import { runnerId as runnerIdShape } from './ids';
import { Malformed } from './shape';

/** Every NATS subject of the project. Ids have no dots, so each is one token. */
export const COMMAND_SUBJECT = 'vmux.commands';
export const SESSION_SERVICE_QUEUE = 'session-service';
export const REPORT_SUBJECTS = 'vmux.reports.*.>';
/** Between session services. */
export const SERVICE_PRESENCE_SUBJECT = 'vmux.presence.session-service';
export const HEARTBEAT_SUBJECTS = 'vmux.heartbeats.*';
export const EVENT_SUBJECTS = 'vmux.events.>';
export const OUTPUT_SUBJECTS = 'vmux.output.>';
/** JetStream's copy of the histories. */
export const EVENT_RELAY_STREAM = 'VMUX_EVENTS';
export const OUTPUT_RELAY_STREAM = 'VMUX_OUTPUT';

export const commandSubject = (type: string): string => `${COMMAND_SUBJECT}.${type}`;
export const COMMAND_SUBJECTS = `${COMMAND_SUBJECT}.*`;

/** Everything that a runner may publish reports on: what its NATS permissions allow. */
export const reportSubjectsOf = (runnerId: string): string => `vmux.reports.${runnerId}.>`;
export const controlReportSubject = (runnerId: string): string =>
  `vmux.reports.${runnerId}.control`;
export const outputReportSubject = (runnerId: string): string => `vmux.reports.${runnerId}.output`;
export const orderSubject = (runnerId: string): string => `vmux.orders.${runnerId}`;
export const heartbeatSubject = (runnerId: string): string => `vmux.heartbeats.${runnerId}`;
export const eventSubject = (sessionId: string, type: string): string =>
  `vmux.events.${sessionId}.${type}`;
export const outputSubject = (sessionId: string): string => `vmux.output.${sessionId}`;

export interface ReportSubject {
  readonly runnerId: string;
  readonly channel: 'control' | 'output';
}

/** Who reports, as NATS vouches for it. Throws `Malformed`. */
export function parseReportSubject(subject: string): ReportSubject {
  const [root, kind, runnerId, channel, ...rest] = subject.split('.');
  if (root !== 'vmux' || kind !== 'reports' || rest.length > 0)
    throw new Malformed('subject', 'vmux.reports.<runner>.<channel>');
  if (channel !== 'control' && channel !== 'output')
    throw new Malformed('subject', 'a control or an output channel');
  return { runnerId: runnerIdShape(runnerId, 'subject'), channel };
}
