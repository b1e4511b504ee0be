import {
  COMMAND_SUBJECTS,
  EVENT_RELAY_STREAM,
  EVENT_SUBJECTS,
  HEARTBEAT_SUBJECTS,
  heartbeatSubject,
  OUTPUT_RELAY_STREAM,
  OUTPUT_SUBJECTS,
  orderSubject,
  REPORT_SUBJECTS,
  reportSubjectsOf,
  SERVICE_PRESENCE_SUBJECT,
} from '@vmux/events';
import { inboxPrefixOf } from './settings';

/** Who connects to NATS. A runner's user names it, so that it can speak for nobody else. */
export type Role = 'gateway' | 'session-service' | 'consumer' | { readonly runner: string };

export const userOf = (role: Role): string =>
  typeof role === 'string' ? role : `runner-${role.runner}`;

export interface ServerConfig {
  readonly host: string;
  readonly port: number;
  readonly jetStreamDirectory: string;
  readonly users: readonly { readonly role: Role; readonly password: string }[];
}

interface Permissions {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
  /** May answer what it is asked, wherever the answer goes. */
  readonly answers?: boolean;
}

/** The configuration of a nats-server that lets every role do its part and nothing else. */
export function renderServerConfig({
  host,
  port,
  jetStreamDirectory,
  users,
}: ServerConfig): string {
  return [
    `host: ${JSON.stringify(host)}`,
    `port: ${port}`,
    'server_name: "vmux"',
    'max_payload: 2MB',
    'jetstream {',
    `  store_dir: ${JSON.stringify(jetStreamDirectory)}`,
    '}',
    'authorization {',
    '  users: [',
    ...users.map(({ role, password }) => `    ${userLine(role, password)}`),
    '  ]',
    '}',
    '',
  ].join('\n');
}

function userLine(role: Role, password: string): string {
  const user = userOf(role);
  const { publish, subscribe, answers } = permissionsOf(role);
  const permissions = {
    publish: { allow: publish },
    subscribe: { allow: [`${inboxPrefixOf(user)}.>`, ...subscribe] },
    ...(answers ? { allow_responses: { max: 1, expires: '2m' } } : {}),
  };
  return `{ user: ${JSON.stringify(user)}, password: ${passwordText(password)}, permissions: ${JSON.stringify(permissions)} }`;
}

/** `$NAME` is read by the server from its environment; anything else is the password itself. */
const passwordText = (password: string): string =>
  password.startsWith('$') ? password : JSON.stringify(password);

function permissionsOf(role: Role): Permissions {
  if (role === 'gateway') return { publish: [COMMAND_SUBJECTS], subscribe: [HEARTBEAT_SUBJECTS] };
  if (role === 'session-service') {
    return {
      publish: [
        orderSubject('*'),
        SERVICE_PRESENCE_SUBJECT,
        EVENT_SUBJECTS,
        OUTPUT_SUBJECTS,
        '$JS.API.>',
      ],
      subscribe: [COMMAND_SUBJECTS, REPORT_SUBJECTS, HEARTBEAT_SUBJECTS, SERVICE_PRESENCE_SUBJECT],
      answers: true,
    };
  }
  if (role === 'consumer') {
    return {
      publish: [...[EVENT_RELAY_STREAM, OUTPUT_RELAY_STREAM].flatMap(readingOf), '$JS.ACK.>'],
      subscribe: [],
    };
  }
  return {
    publish: [reportSubjectsOf(role.runner), heartbeatSubject(role.runner)],
    subscribe: [orderSubject(role.runner)],
  };
}

/** What a durable consumer needs of JetStream, and no right to change a stream. */
const readingOf = (stream: string): string[] => [
  `$JS.API.STREAM.INFO.${stream}`,
  `$JS.API.CONSUMER.*.${stream}`,
  `$JS.API.CONSUMER.*.${stream}.>`,
  `$JS.API.CONSUMER.DURABLE.CREATE.${stream}.>`,
  `$JS.API.CONSUMER.MSG.NEXT.${stream}.>`,
];
