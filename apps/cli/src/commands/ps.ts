import { Sandbox, type SessionStatus, type SessionSummary } from '@vmux/sdk';
import { noNames, parsed } from '../arguments';
import { labelled } from '../offers';
import { findServer } from '../server';
import { jsonText } from '../terminal/escape';
import { ageOf, print, table } from '../terminal/output';

const options = {
  all: { type: 'boolean', short: 'a' },
  json: { type: 'boolean' },
} as const;

const live: readonly SessionStatus[] = [
  'starting',
  'running',
  'suspended',
  'released',
  'lost',
  'stopping',
];

/** Sessions, the newest first. */
export async function ps(args: readonly string[]): Promise<number> {
  const given = parsed('ps', args, options);
  noNames(given, 'ps');
  const { vmux } = await findServer();
  const sessions: SessionSummary[] = [];
  const filter = given.has('all') ? {} : { status: live };
  for await (const session of Sandbox.list({ vmux, ...filter })) sessions.push(session);
  if (given.has('json')) await print(jsonText(sessions));
  else
    await print(
      table([
        ['SESSION', 'STATUS', 'PROVIDER', 'RUNNING', 'RUN', 'PORTS', 'AGE'],
        ...sessions.map(rowOf),
      ]),
    );
  return 0;
}

const rowOf = (session: SessionSummary): string[] => [
  session.id,
  session.making ? `${session.status} (${session.making.stage})` : session.status,
  labelled(session),
  String(session.runningExecs),
  String(session.execs.issued),
  session.ports.join(' ') || '-',
  ageOf(session.createdAt),
];
