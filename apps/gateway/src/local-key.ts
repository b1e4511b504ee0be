import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { SCOPES, tokenOf } from './application/api-keys';
import type { KeyRing } from './application/key-ring';

export const LOCAL_OWNER = 'local';

/**
 * On this machine's own address the user who starts the gateway is its administrator: a key for that
 * user lies in a file that nobody else can read. A file whose key works is left as it is.
 */
export async function ensureLocalKey(keys: KeyRing, dataDir: string): Promise<void> {
  const file = join(dataDir, 'api-key');
  const known = await readFile(file, 'utf8').catch((fault: NodeJS.ErrnoException) => {
    if (fault.code === 'ENOENT') return '';
    throw fault;
  });
  if (known !== '' && (await keys.verify(known.trim()))) return;
  const { key, secret } = await keys.create(
    { owner: LOCAL_OWNER, name: 'local user', scopes: SCOPES, liveSessions: null },
    {
      principal: 'system',
      correlationId: 'start',
      requestKey: randomBytes(16).toString('base64url'),
      digest: '',
    },
  );
  if (!secret) throw new Error('the key of the local user was not made');
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await replace(file, `${tokenOf(key.keyId, secret)}\n`);
}

/** Whole or not at all, and never readable by others. */
async function replace(file: string, text: string): Promise<void> {
  const draft = `${file}.${randomBytes(6).toString('hex')}`;
  const handle = await open(draft, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(draft, file);
}
