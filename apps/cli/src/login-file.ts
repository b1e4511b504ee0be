import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { Failure } from './failure';

export interface Login {
  readonly url: string;
  readonly apiKey: string;
}

export function loginFile(env: NodeJS.ProcessEnv = process.env): string {
  return join(env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'vmux', 'login.json');
}

/** The server that `vmux login` remembered; null without one. */
export function savedLogin(): Login | null {
  const file = loginFile();
  try {
    const { url, apiKey } = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    if (typeof url === 'string' && typeof apiKey === 'string') return { url, apiKey };
    throw new SyntaxError('no url and key');
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ENOENT') return null;
    if (!(fault instanceof SyntaxError)) throw fault;
    throw new Failure(`${file} cannot be read`, 'log in again: vmux login URL');
  }
}

/** For its user alone. */
export function saveLogin(login: Login): string {
  const file = loginFile();
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  rmSync(file, { force: true });
  writeFileSync(file, `${JSON.stringify(login)}\n`, { mode: 0o600, flag: 'wx' });
  return file;
}

export function forgetLogin(): boolean {
  if (!savedLogin()) return false;
  rmSync(loginFile(), { force: true });
  return true;
}
