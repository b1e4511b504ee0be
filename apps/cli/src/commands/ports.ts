import type { PortInfo } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { UsageError } from '../failure';
import { isPort } from '../project/settings';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print, table } from '../terminal/output';

const options = {
  publish: { type: 'string', multiple: true },
  wake: { type: 'boolean' },
  unpublish: { type: 'string', multiple: true },
  revoke: { type: 'string', multiple: true },
  json: { type: 'boolean' },
} as const;

/** What listens in a session, and who may look. */
export async function ports(args: readonly string[]): Promise<number> {
  const given = parsed('ports', args, options);
  const name = onlyName(given, 'ports');
  const publish = given.texts('publish').map(portFrom);
  const unpublish = given.texts('unpublish').map(portFrom);
  const revoke = given.texts('revoke').map(portFrom);
  if (given.has('wake') && publish.length === 0)
    throw new UsageError('--wake goes with --publish', 'as in: --publish 8000 --wake');
  const sandbox = await findSession(await findServer(), name);
  for (const port of publish) await sandbox.ports.publish(port, { wake: given.has('wake') });
  for (const port of unpublish) await sandbox.ports.unpublish(port);
  for (const port of revoke) await sandbox.ports.revokeTokens(port);
  const found = await sandbox.ports.list();
  if (given.has('json')) await print(jsonText(found));
  else await print(table([['PORT', 'STATE', 'ACCESS', 'URL'], ...found.map(rowOf)]));
  return 0;
}

const rowOf = ({ port, open, public: isPublic, wake, reserved, url }: PortInfo): string[] => [
  String(port),
  reserved ? 'reserved' : open ? 'open' : 'closed',
  isPublic ? (wake ? 'public, wakes' : 'public') : 'private',
  url ?? '-',
];

export function portFrom(text: string): number {
  const port = /^\d{1,6}$/.test(text) ? Number(text) : null;
  if (isPort(port)) return port;
  throw new UsageError(`a port is a number from 1 to 65535, not "${text}"`);
}
