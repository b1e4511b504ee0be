import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { statfs } from 'node:fs/promises';
import { cpus, freemem, loadavg } from 'node:os';
import { join } from 'node:path';
import type { ArtifactStore } from '@vmux/artifacts';
import {
  type Heartbeat,
  heartbeatSubject,
  Malformed,
  orderSubject,
  parseOrder,
} from '@vmux/events';
import { type Bus, decodeJson, encodeJson, MalformedMessage } from '@vmux/messaging';
import { startTunnelServer } from '@vmux/tunnel';
import type { Capability, SandboxDriver } from '../driver';
import { dataPlane } from '../tunnel/data-plane';
import { Creations } from './creations';
import { Leftovers } from './leftovers';
import { OrderDesk } from './order-desk';
import { Reporter } from './reporter';
import { RunnerJournal } from './runner-journal';
import { type Log, Sandboxes } from './sandboxes';
import { Setup } from './setup';
import { SetupCache, type SetupCacheSettings } from './setup-cache';

export interface RunnerSettings {
  readonly runnerId: string;
  readonly drivers: readonly SandboxDriver[];
  readonly bus: Bus;
  /** For what the runner remembers of its sandboxes across restarts. */
  readonly journalDirectory: string;
  readonly artifacts?: ArtifactStore;
  /** Where to keep what set-ups installed; without it every session installs for itself. */
  readonly setupCache?: SetupCacheSettings;
  readonly maxSandboxes: number;
  /** How often to ask whether the sessions that something is kept for are still there. */
  readonly collectEveryMs?: number;
  /** Emulated providers say so everywhere. */
  readonly emulated?: boolean;
  /** Where gateways reach the data plane; on loopback, at any port, without it. */
  readonly tunnel?: {
    readonly host: string;
    readonly port: number;
    readonly announcedUrl: string | null;
  };
  readonly log: Log;
}

export interface Runner {
  /** Lets orders under way finish or be sent again, and lets go of the sandboxes, which go on. */
  stop(): Promise<void>;
}

const heartbeatEveryMs = 2_000;
const changeShownMs = 200;
const COLLECT_EVERY_MS = 15 * 60_000;

/** The work of a runner: orders in, reports out, sandboxes followed, whatever the provider. */
export async function startRunner(settings: RunnerSettings): Promise<Runner> {
  const { runnerId, bus, drivers, log } = settings;
  const stopping = new AbortController();
  const { signal } = stopping;
  setMaxListeners(0, signal);
  const journal = await RunnerJournal.at(settings.journalDirectory);
  const reporter = new Reporter(bus, runnerId, (reason) =>
    log('a report is sent again', { reason }),
  );
  const cache = settings.setupCache && (await SetupCache.at(settings.setupCache));
  const setup = new Setup({ cache, log });
  const sandboxes = new Sandboxes({ drivers, reporter, journal, setup, log, signal });
  const artifacts = settings.artifacts;
  const creations = new Creations(signal);
  const desk = new OrderDesk({
    runnerId,
    sandboxes,
    reporter,
    journal,
    indexDirectory: join(settings.journalDirectory, '../index'),
    artifacts,
    setup,
    creations,
    log,
    signal,
  });
  await sandboxes.adoptAll();

  const orders = bus.serve(orderSubject(runnerId), { concurrency: 1024 }, async ({ data }) => {
    try {
      await desk.take(parseOrder(decodeJson(data)));
    } catch (error) {
      if (!(error instanceof Malformed) && !(error instanceof MalformedMessage)) throw error;
      log('an order is malformed', { reason: error.message });
    }
    return undefined;
  });

  const tunnel = await startTunnelServer({
    ...(settings.tunnel ?? { host: '127.0.0.1', port: 0 }),
    serve: dataPlane(sandboxes, log),
    onFault: (fault) => log('a stream of the tunnel failed', { reason: String(fault) }),
  });

  const incarnation = randomUUID();
  const beat = async () => {
    await sandboxes.adoptAll();
    const heartbeat = await heartbeatOf(settings, {
      incarnation,
      sandboxes: sandboxes.count,
      making: creations.making,
      tunnel: { url: tunnel.url, token: tunnel.token },
    });
    bus.publish(heartbeatSubject(runnerId), encodeJson(heartbeat));
  };
  const tryBeat = () =>
    void beat().catch((error) => log('a heartbeat failed', { error: String(error) }));
  const beating = setInterval(tryBeat, heartbeatEveryMs);
  await beat();
  // Who waits for a sandbox sees soon how far it has come.
  let soon: NodeJS.Timeout | undefined;
  creations.onChange(() => {
    soon ??= setTimeout(() => {
      soon = undefined;
      tryBeat();
    }, changeShownMs);
  });

  const leftovers = new Leftovers({
    ...{ drivers, reporter, log, signal },
    forget: (sessionId) => desk.forgetSession(sessionId),
  });
  let collecting: Promise<void> | undefined;
  const collect = () => {
    collecting ??= leftovers
      .collect()
      .catch((error) => {
        if (!signal.aborted) log('leftovers could not be collected', { error: String(error) });
      })
      .finally(() => {
        collecting = undefined;
      });
  };
  collect();
  const collectingAgain = setInterval(collect, settings.collectEveryMs ?? COLLECT_EVERY_MS);

  return {
    stop: async () => {
      clearInterval(collectingAgain);
      clearInterval(beating);
      creations.onChange(() => undefined);
      clearTimeout(soon);
      await tunnel.close();
      stopping.abort(new Error('the runner stops'));
      await collecting;
      await sandboxes.close();
      await orders.stop();
      await Promise.all(drivers.map((driver) => driver.close()));
    },
  };
}

interface Standing extends Pick<Heartbeat, 'incarnation' | 'tunnel' | 'making'> {
  readonly sandboxes: number;
}

async function heartbeatOf(
  {
    runnerId,
    drivers,
    artifacts,
    journalDirectory,
    maxSandboxes,
    emulated = false,
  }: RunnerSettings,
  { incarnation, sandboxes, tunnel, making }: Standing,
): Promise<Heartbeat> {
  const providers = await Promise.all(
    drivers.map(async (driver) => {
      const { available, reason, offered, gpus, pool } = await driver.capabilities();
      return {
        provider: driver.provider,
        available,
        reason,
        capabilities: capabilitiesOf(offered, artifacts !== undefined && driver.isolates !== false),
        emulated,
        ...(gpus ? { gpus } : {}),
        ...(pool === undefined ? {} : { pool }),
      };
    }),
  );
  return {
    runnerId,
    incarnation,
    at: Date.now(),
    draining: false,
    providers,
    capacity: {
      sandboxes,
      maxSandboxes,
      freeMemoryMiB: Math.floor(freemem() / 1024 / 1024),
      freeDiskMiB: await freeDiskMiB(journalDirectory),
      cpus: cpus().length,
      load: loadavg()[0] ?? 0,
    },
    tunnel,
    making,
  };
}

/** Where this runner keeps things. */
async function freeDiskMiB(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return Math.floor((bavail * bsize) / 1024 / 1024);
}

/** With somewhere to put them every driver has portable checkpoints, whatever it has of its own. */
const capabilitiesOf = (offered: readonly Capability[], stores: boolean) => [
  ...new Set([...offered.filter(isPlaced), ...(stores ? (['checkpoint', 'fork'] as const) : [])]),
];

/** Sandboxes are placed by these; a driver's other abilities are checked where they are asked for. */
const isPlaced = (
  capability: Capability,
): capability is Exclude<Capability, 'egress' | 'diskLimit'> =>
  capability !== 'egress' && capability !== 'diskLimit';
