import { type DynamicModule, Module, type Provider } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import type { ArtifactStore } from '@vmux/artifacts';
import type { KeyStore } from '@vmux/key-store';
import type { Bus } from '@vmux/messaging';
import type { Logger } from 'pino';
import { Commander } from './application/commander';
import { CreateKeys } from './application/create-keys';
import { ExecWaiting } from './application/exec-waiting';
import { HistoryReader } from './application/history-reader';
import { KeyRing } from './application/key-ring';
import { Ledger } from './application/ledger';
import { LogReader } from './application/log-reader';
import { RateLimit } from './application/rate-limit';
import { RunnerBoard } from './application/runner-board';
import { SessionCommands } from './application/session-commands';
import { SessionReader } from './application/session-reader';
import { Shares } from './application/shares';
import { GuardedStore } from './application/store-guard';
import { Tickets } from './application/tickets';
import { ViewSnapshots } from './application/view-snapshots';
import type { Config } from './config';
import { FAILED_LOGINS } from './http/auth.guard';
import { Followers } from './http/followers';
import type { Metrics } from './http/metrics';
import { LogStreams } from './logs/log-streams';
import type { RunningIndex } from './projections/start-index';
import { RedisLink } from './shared/redis-link';
import { Waking } from './time/waking';
import {
  ARTIFACTS,
  BUS,
  CONFIG,
  EVENT_STORE,
  KEY_STORE,
  LOGGER,
  METRICS,
  SESSION_INDEX,
} from './tokens';

/** What the process opened before Nest came up. */
export interface Outside {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly store: GuardedStore;
  readonly bus: Bus;
  readonly artifacts: ArtifactStore;
  readonly keys: KeyStore;
  readonly keyRing: KeyRing;
  readonly index: RunningIndex;
  readonly runners: RunnerBoard;
}

const FAILED_LOGINS_PER_SECOND = 5;
const FAILED_LOGIN_BURST = 50;

/** The application's objects, for every capability. */
@Module({})
// biome-ignore lint/complexity/noStaticOnlyClass: Nest takes modules as classes
export class CoreModule {
  static with(outside: Outside): DynamicModule {
    const providers = [...given(outside), ...made(outside)];
    return { module: CoreModule, global: true, providers, exports: providers };
  }
}

const given = (outside: Outside): Provider[] => [
  { provide: CONFIG, useValue: outside.config },
  { provide: LOGGER, useValue: outside.logger },
  { provide: METRICS, useValue: outside.metrics },
  { provide: EVENT_STORE, useValue: outside.store },
  { provide: GuardedStore, useValue: outside.store },
  { provide: BUS, useValue: outside.bus },
  { provide: ARTIFACTS, useValue: outside.artifacts },
  { provide: KEY_STORE, useValue: outside.keys },
  { provide: SESSION_INDEX, useValue: outside.index },
  { provide: KeyRing, useValue: outside.keyRing },
  { provide: RunnerBoard, useValue: outside.runners },
];

function made({ config, logger, metrics, store, bus, keys, keyRing, index }: Outside): Provider[] {
  const { limits, commandTimeoutMs } = config;
  const sessions = new SessionReader(
    store,
    (err, session) => logger.warn({ err, session }, 'a session cannot be followed'),
    new ViewSnapshots(store),
  );
  const logs = new LogReader(store, sessions);
  const execs = new ExecWaiting(store, sessions, logs);
  const shares = new Shares(sessions);
  const followers = new Followers(
    limits.followersPerOwner,
    config.keepAliveMs,
    metrics,
    (keyId) => keyRing.isRevoked(keyId),
    shares,
  );
  const commander = new Commander(bus, store, keys, commandTimeoutMs);
  const createKeys = new CreateKeys(store, sessions, (err) =>
    logger.warn({ err }, 'the key of a new session is kept for longer than it need be'),
  );
  const { liveSessions } = limits;
  const commands = new SessionCommands(commander, sessions, index, keys, createKeys, liveSessions);
  const requests = new RateLimit(limits.requestsPerSecond, limits.requestBurst);
  const failures = new RateLimit(FAILED_LOGINS_PER_SECOND, FAILED_LOGIN_BURST);
  const link = linkTo(config.redisUrl, logger);
  link?.share('requests', requests);
  link?.share('failures', failures);
  return [
    Reflector,
    { provide: SessionReader, useValue: sessions },
    { provide: Shares, useValue: shares },
    { provide: Followers, useValue: followers },
    { provide: SessionCommands, useValue: commands },
    { provide: Waking, useValue: new Waking(commands, sessions) },
    { provide: LogStreams, useValue: new LogStreams(logs, followers, metrics, logger) },
    { provide: ExecWaiting, useValue: execs },
    { provide: Ledger, useValue: new Ledger(execs) },
    { provide: HistoryReader, useValue: new HistoryReader(store, sessions) },
    { provide: Tickets, useValue: new Tickets(Date.now, link) },
    { provide: RateLimit, useValue: requests },
    { provide: FAILED_LOGINS, useValue: failures },
    ...(link ? [{ provide: RedisLink, useValue: link }] : []),
  ];
}

/** Without Redis this gateway is taken for the only one. */
function linkTo(url: string | null, logger: Logger): RedisLink | null {
  if (url === null) return null;
  return new RedisLink({
    url,
    onFault: (err) => logger.warn({ err }, 'tickets and rates are not shared at the moment'),
  });
}
