import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

/** Of the user, whether it exists or not. */
export function dataPathOf(env: NodeJS.ProcessEnv): string {
  const home = env.XDG_DATA_HOME || join(homedir(), '.local', 'share');
  return resolve(env.VMUX_DATA_DIR || join(home, 'vmux'));
}

/** Where the embedded stack keeps everything that it must not lose, readable by its user alone. */
export class DataDirectory {
  private constructor(readonly path: string) {}

  static at(path: string): DataDirectory {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    chmodSync(path, 0o700);
    return new DataDirectory(path);
  }

  static ofUser(env: NodeJS.ProcessEnv): DataDirectory {
    return DataDirectory.at(dataPathOf(env));
  }

  /** A directory of one part of the stack. */
  directory(name: string): string {
    const path = join(this.path, name);
    mkdirSync(path, { recursive: true, mode: 0o700 });
    return path;
  }

  /** The file of a secret that is made on first use; its content never stands in argv or in a log. */
  secretFile(name: string): string {
    const path = join(this.directory('secrets'), name);
    try {
      writeFileSync(path, `${randomBytes(32).toString('base64url')}\n`, {
        mode: 0o600,
        flag: 'wx',
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    return path;
  }

  secret(name: string): string {
    return readFileSync(this.secretFile(name), 'utf8').trim();
  }

  write(name: string, content: string): string {
    const path = join(this.path, name);
    writeFileSync(path, content, { mode: 0o600 });
    return path;
  }
}
