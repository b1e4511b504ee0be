import { readFileSync } from 'node:fs';

export interface BusSettings {
  readonly url: string;
  /** How this process is called in the server's list of connections. */
  readonly name: string;
  readonly user?: string;
  readonly password?: string;
  /** Replies come back below this prefix, which the user's permissions name. */
  readonly inboxPrefix?: string;
}

/** Reads NATS_URL, NATS_USER and NATS_PASSWORD_FILE; a password itself never stands in the environment. */
export function busSettingsFrom(env: NodeJS.ProcessEnv, name: string): BusSettings {
  const url = env.NATS_URL;
  if (!url)
    throw new Error('set NATS_URL to the server’s address, for example nats://127.0.0.1:4222');
  const user = env.NATS_USER;
  if (!user) return { url, name };
  if (!env.NATS_PASSWORD_FILE) {
    throw new Error('set NATS_PASSWORD_FILE to a file that holds the password of NATS_USER');
  }
  const password = readFileSync(env.NATS_PASSWORD_FILE, 'utf8').trim();
  return { url, name, user, password, inboxPrefix: inboxPrefixOf(user) };
}

/** A user may only receive replies that are meant for it. */
export const inboxPrefixOf = (user: string): string => `_INBOX_${user}`;
