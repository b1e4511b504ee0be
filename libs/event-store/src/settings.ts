import { readFileSync } from 'node:fs';
import type { DNSClusterOptions, GossipClusterOptions } from '@eventstore/db-client/dist/Client';
import { parseConnectionString } from '@eventstore/db-client/dist/Client/parseConnectionString';

export interface EventStoreSettings {
  /** `esdb://[user[:password]@]host:port[,host:port…]?tls=true&tlsCAFile=…`, or `esdb+discover://…`. */
  readonly url: string;
  /** Where the password stands, so that it need not stand in the URL. The user is then `admin` unless the URL names one. */
  readonly passwordFile?: string;
  /** How long one append, read or first answer may go without progress before `StoreUnavailable`. */
  readonly timeoutMs?: number;
  /** An append with more is refused without asking the server. */
  readonly maxAppendBytes?: number;
}

/** What the settings come to: everything that a connection needs to know. */
export interface Target {
  readonly endpoint?: string;
  readonly cluster?: DNSClusterOptions | GossipClusterOptions;
  /** Undefined: no TLS. */
  readonly tls?: { readonly ca?: Buffer; readonly key?: Buffer; readonly cert?: Buffer };
  readonly authorization?: string;
  readonly connectionName?: string;
  readonly keepAliveIntervalMs: number;
  readonly keepAliveTimeoutMs: number;
}

/** Reads `EVENTSTORE_URL` and `EVENTSTORE_PASSWORD_FILE`. */
export function eventStoreSettingsFrom(env: NodeJS.ProcessEnv): EventStoreSettings {
  const url = env.EVENTSTORE_URL;
  if (!url) throw new Error('EVENTSTORE_URL is not set: esdb://host:port?tls=true&tlsCAFile=…');
  const passwordFile = env.EVENTSTORE_PASSWORD_FILE;
  return passwordFile ? { url, passwordFile } : { url };
}

const loginPart = /^(esdb(?:\+discover)?:\/\/)([^@/?]*)@/;

/** Fails at once, and without showing the password, when the settings cannot work. */
export function targetOf({ url, passwordFile }: EventStoreSettings): Target {
  const login = loginOf(loginPart.exec(url)?.[2], passwordFile);
  // The vendor's parser prints the whole string when it meets an option that it does not know.
  const options = parsed(url.replace(loginPart, '$1'));
  const secure = options.tls !== false;
  if (login && !secure) {
    throw new Error('a password is never sent without TLS: set tls=true in the event store URL');
  }
  const { hosts, dnsDiscover, connectionName, keepAliveInterval, keepAliveTimeout } = options;
  const [first] = hosts;
  if (first === undefined) throw new Error('the event store URL names no host');
  const rest = {
    tls: secure ? tls(options) : undefined,
    authorization:
      login && `Basic ${Buffer.from(`${login.username}:${login.password}`).toString('base64')}`,
    connectionName,
    keepAliveIntervalMs: keepAliveInterval ?? 10_000,
    keepAliveTimeoutMs: keepAliveTimeout ?? 10_000,
  };
  const discovery = {
    nodePreference: options.nodePreference,
    discoveryInterval: options.discoveryInterval,
    gossipTimeout: options.gossipTimeout,
    maxDiscoverAttempts: options.maxDiscoverAttempts ?? 3,
  };
  if (dnsDiscover) return { ...rest, cluster: { discover: first, ...discovery } };
  if (hosts.length > 1) return { ...rest, cluster: { endpoints: hosts, ...discovery } };
  return { ...rest, endpoint: `${first.address}:${first.port}` };
}

function loginOf(inUrl: string | undefined, passwordFile: string | undefined) {
  const [user, password] = (inUrl ?? '').split(':').map(decodeURIComponent);
  if (passwordFile !== undefined) {
    return { username: user || 'admin', password: readFileSync(passwordFile, 'utf8').trim() };
  }
  if (!user) return undefined;
  if (!password) {
    throw new Error('the event store URL names a user without a password: set a password file');
  }
  return { username: user, password };
}

function parsed(url: string): ReturnType<typeof parseConnectionString> {
  try {
    return parseConnectionString(url);
  } catch {
    // The client's own message quotes the connection string, password and all.
    throw new Error('the event store URL cannot be read: esdb://host:port?tls=true&tlsCAFile=…');
  }
}

function tls({
  tlsCAFile,
  userCertFile,
  userKeyFile,
}: ReturnType<typeof parseConnectionString>): Target['tls'] {
  return {
    ...(tlsCAFile ? { ca: readFileSync(tlsCAFile) } : {}),
    ...(userKeyFile ? { key: readFileSync(userKeyFile) } : {}),
    ...(userCertFile ? { cert: readFileSync(userCertFile) } : {}),
  };
}
