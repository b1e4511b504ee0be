import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { findServer } from '../server';
import { jsonText } from '../terminal/escape';
import { ageOf, print, say, table } from '../terminal/output';

const options = {
  scope: { type: 'string', multiple: true },
  owner: { type: 'string' },
  sessions: { type: 'string' },
  json: { type: 'boolean' },
} as const;

const scopes = ['sessions:read', 'sessions:write', 'admin'];

interface Key {
  readonly id: string;
  readonly owner: string;
  readonly name: string;
  readonly scopes: readonly string[];
  readonly createdAt: string;
  readonly revokedAt: string | null;
  readonly key?: string | null;
}

/** API keys: lists, makes and revokes them. */
export async function keys(args: readonly string[]): Promise<number> {
  const given = parsed('keys', args, options);
  const [verb = 'list', name, extra] = given.positionals;
  const isJson = given.has('json');
  if (extra !== undefined) throw new UsageError(`vmux keys does not take "${extra}"`);
  if (verb === 'list' && name === undefined) {
    const { vmux } = await findServer();
    const { keys: all } = await vmux.call<{ keys: Key[] }>('GET', '/v1/api-keys');
    await print(
      isJson
        ? jsonText(all)
        : table([['KEY', 'NAME', 'OWNER', 'SCOPES', 'AGE', ''], ...all.map(rowOf)]),
    );
    return 0;
  }
  if (verb === 'create' && name !== undefined) {
    const asked = given.texts('scope');
    const wrong = asked.find((scope) => !scopes.includes(scope));
    if (wrong !== undefined)
      throw new UsageError(`there is no scope "${wrong}"`, `there are ${scopes.join(', ')}`);
    const { vmux } = await findServer();
    const body = {
      ...{ name, owner: given.text('owner'), liveSessions: given.number('sessions') },
      scopes: asked.length > 0 ? asked : ['sessions:read', 'sessions:write'],
    };
    const made = await vmux.call<Key>('POST', '/v1/api-keys', { body });
    await print(isJson ? jsonText(made) : (made.key ?? ''));
    if (!isJson) await say('this is the only time that the key is shown');
    return 0;
  }
  if (verb === 'revoke' && name !== undefined) {
    const { vmux } = await findServer();
    const path = `/v1/api-keys/${encodeURIComponent(name)}`;
    const revoked = await vmux.call<Key>('DELETE', path);
    await print(isJson ? jsonText(revoked) : revoked.id);
    return 0;
  }
  throw new UsageError(
    `vmux keys does not know "${given.positionals.join(' ')}"`,
    'use: vmux keys, vmux keys create NAME, vmux keys revoke KEY',
  );
}

const rowOf = ({ id, name, owner, scopes: has, createdAt, revokedAt }: Key): string[] => [
  ...[id, name, owner, has.join(' '), ageOf(createdAt), revokedAt ? 'revoked' : ''],
];
