import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { chmod, link, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type ClearEnv, type SealedEnv, sessionIdShape } from '@vmux/events';
import { KeyDestroyed, type KeyStore } from './port';
import { KEY_BYTES, keyedDigest, type SessionKey, seal, unseal } from './seal';

/**
 * The key store as a directory of mode 0700 with one file of mode 0600 per session. Several processes
 * may share it: whoever makes a session's key first has made it for all.
 */
export class KeyDirectory implements KeyStore {
  private constructor(private readonly root: string) {}

  static async at(root: string): Promise<KeyDirectory> {
    await mkdir(root, { recursive: true, mode: 0o700 });
    const { mode, uid } = await stat(root);
    if (process.getuid && uid !== process.getuid())
      throw new Error(`${root} belongs to another user: choose a key directory of your own`);
    if ((mode & 0o077) !== 0) await chmod(root, 0o700);
    await dropAbandoned(root);
    return new KeyDirectory(root);
  }

  async keyOf(sessionId: string): Promise<string> {
    return (await this.ensured(sessionId)).keyId;
  }

  async seal(sessionId: string, env: ClearEnv): Promise<SealedEnv> {
    return seal(await this.ensured(sessionId), env);
  }

  async unseal(sessionId: string, sealed: SealedEnv): Promise<ClearEnv> {
    const key = await this.existing(sessionId);
    if (!key) throw new KeyDestroyed(sessionId);
    return unseal(key, sealed);
  }

  async digest(sessionId: string, bytes: Uint8Array): Promise<string> {
    return keyedDigest(await this.ensured(sessionId), bytes);
  }

  async destroy(sessionId: string): Promise<void> {
    // Its name goes first: nobody reads a key that is half overwritten. By the other name it is found again,
    // whoever is killed in between.
    const doomed = join(this.root, `.doomed-${sessionIdShape(sessionId, 'session id')}`);
    await unlessGone(rename(this.fileOf(sessionId), doomed));
    if (!(await unlessGone(overwritten(doomed)))) return;
    await rm(doomed, { force: true });
    await synced(this.root);
  }

  private async ensured(sessionId: string): Promise<SessionKey> {
    return (
      (await this.existing(sessionId)) ??
      (await this.made(sessionId)) ??
      // Another process made it between the two.
      (await this.existing(sessionId)) ??
      Promise.reject(new KeyDestroyed(sessionId))
    );
  }

  /** Null when another process made one meanwhile. A key appears whole or not at all. */
  private async made(sessionId: string): Promise<SessionKey | null> {
    const secret = randomBytes(KEY_BYTES);
    const draft = join(this.root, `.${randomUUID()}`);
    try {
      const handle = await open(draft, 'wx', 0o600);
      try {
        await handle.writeFile(secret);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await link(draft, this.fileOf(sessionId));
    } catch (fault) {
      if (isCode(fault, 'EEXIST')) return null;
      throw fault;
    } finally {
      await rm(draft, { force: true });
    }
    await synced(this.root);
    return keyOf(sessionId, secret);
  }

  private async existing(sessionId: string): Promise<SessionKey | null> {
    try {
      const secret = await readFile(this.fileOf(sessionId));
      return secret.length === KEY_BYTES ? keyOf(sessionId, secret) : null;
    } catch (fault) {
      if (isCode(fault, 'ENOENT')) return null;
      throw fault;
    }
  }

  private fileOf(sessionId: string): string {
    return join(this.root, sessionIdShape(sessionId, 'session id'));
  }
}

/** The name says which key it was and nothing of the key. */
const keyOf = (sessionId: string, secret: Buffer): SessionKey => ({
  sessionId,
  secret,
  keyId: createHash('sha256').update('vmux key id').update(secret).digest('hex').slice(0, 16),
});

/** Zeros in place, for file systems that write in place. */
async function overwritten(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.write(Buffer.alloc(KEY_BYTES), 0, KEY_BYTES, 0);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function synced(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const ABANDONED_AFTER_MS = 60_000;

/** What a killed process left while it made or destroyed a key. */
async function dropAbandoned(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    if (!name.startsWith('.')) continue;
    const path = join(root, name);
    const found = await stat(path).catch((fault: unknown) => {
      if (isCode(fault, 'ENOENT')) return null;
      throw fault;
    });
    if (found && found.ctimeMs < Date.now() - ABANDONED_AFTER_MS) await rm(path, { force: true });
  }
}

/** False when it is not there. */
async function unlessGone(act: Promise<void>): Promise<boolean> {
  try {
    await act;
    return true;
  } catch (fault) {
    if (isCode(fault, 'ENOENT')) return false;
    throw fault;
  }
}

const isCode = (fault: unknown, code: string): boolean =>
  typeof fault === 'object' && fault !== null && 'code' in fault && fault.code === code;
