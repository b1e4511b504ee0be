import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Miniflare } from 'miniflare';
import { NsDriver } from '../../../apps/runner-local/src/drivers/ns-driver';
import { INSTANCE_TYPES } from '../../../workers/cloudflare/src/instance-types';
import { bundleWorker } from './bundle';
import { StandIn } from './stand-in';

export interface EmulatorSettings {
  /** Of the repository: the Worker's sources are bundled from there. */
  readonly root: string;
  readonly dataDir: string;
  readonly nativeDir: string;
  /** 0 for any. */
  readonly port: number;
  /** The Worker's secret; without it the Worker is closed. */
  readonly key: string | null;
  readonly cgroupParent?: string;
  readonly sleepAfter?: string;
  readonly leakedAfterMinutes?: string;
  readonly slowStartMs?: string;
}

export interface Emulator {
  readonly url: string;
  close(): Promise<void>;
}

/** Of wrangler.jsonc too. */
export const COMPATIBILITY_DATE = '2026-04-01';

/** The deployed Worker in workerd, with containers of this machine. */
export async function startEmulator(settings: EmulatorSettings): Promise<Emulator> {
  const { root, dataDir, nativeDir, port, key } = settings;
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const token = randomBytes(32).toString('hex');
  const sandboxes = join(dataDir, 'ns');
  // A container's disk is gone with it: nothing here needs a filesystem that keeps snapshots.
  const options = {
    dataDir: sandboxes,
    launcherPath: join(nativeDir, 'vmux-ns'),
    supervisorPath: join(nativeDir, 'vmux-supervisor'),
    cgroupParent: settings.cgroupParent ?? 'vmux-cloudflare',
    store: 'plain',
  } as const;
  const driver = new NsDriver(options);
  const local = { driver, sandboxesDir: join(sandboxes, 's'), dir: join(dataDir, 'containers') };
  const standIn = await StandIn.listen(local, token);
  const objects = Object.fromEntries(
    INSTANCE_TYPES.map(({ binding, className }) => [binding, { className, useSQLite: true }]),
  );
  const miniflare = new Miniflare({
    host: '127.0.0.1',
    port,
    modules: true,
    script: await bundleWorker(root),
    compatibilityDate: COMPATIBILITY_DATE,
    compatibilityFlags: ['nodejs_compat'],
    durableObjects: { ...objects, REGISTRY: { className: 'Registry', useSQLite: true } },
    durableObjectsPersist: join(dataDir, 'objects'),
    r2Buckets: ['BACKUP_BUCKET'],
    r2Persist: join(dataDir, 'buckets'),
    bindings: {
      ...(key === null ? {} : { VMUX_KEY: key }),
      VMUX_EMULATED: '1',
      STAND_IN_URL: standIn.url,
      STAND_IN_TOKEN: token,
      ...(settings.sleepAfter ? { VMUX_SLEEP_AFTER: settings.sleepAfter } : {}),
      ...(settings.slowStartMs ? { SLOW_START_MS: settings.slowStartMs } : {}),
      ...(settings.leakedAfterMinutes
        ? { VMUX_LEAKED_AFTER_MINUTES: settings.leakedAfterMinutes }
        : {}),
    },
  });
  const url = await miniflare.ready;
  standIn.onControl = async (path) => control(path, miniflare, standIn, token);
  const access = { url: standIn.url, token };
  await writeFile(join(dataDir, 'control.json'), JSON.stringify(access), { mode: 0o600 });
  return {
    url: url.origin,
    close: async () => {
      await miniflare.dispose();
      await standIn.close();
      await driver.close();
    },
  };
}

/** What can happen to a container or an object from outside: `<verb>/<session>/<epoch>/<instance>[/<number>]`. */
async function control(
  path: string,
  miniflare: Miniflare,
  standIn: StandIn,
  token: string,
): Promise<unknown> {
  const [verb = '', sessionId, epoch, instance, number] = path.split('/');
  const name = `${sessionId}/${epoch}/${instance}`;
  const ask = async (what: string): Promise<string> => {
    const headers = { 'x-vmux-stand-in': token };
    const answer = await miniflare.dispatchFetch(`http://emulator/emulator/${what}/${name}`, {
      headers,
    });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.text();
  };
  if (verb === 'reap') return { said: await ask('reap') };
  if (verb === 'incarnation') return { said: await ask(verb) };
  const container = standIn.container(await ask('container'));
  if (!container) throw new Error(`${name} has no container`);
  if (verb === 'kill') container.killFirstProcess();
  else if (verb === 'replace') await container.replaceSilently();
  else if (verb === 'evict') container.evict(Number(number ?? 15 * 60_000));
  else if (verb === 'cut') container.entry.cut();
  else if (verb === 'hold-save') container.holdSave();
  else if (verb === 'held') await container.held();
  else if (verb === 'let-go') container.letGo();
  else if (verb === 'evict-object') {
    await ask(verb);
    // workerd hands a WebSocket on past the object that answered with it; the platform may not.
    container.entry.cut();
  } else throw new Error(`no such thing: ${verb}`);
  return {};
}
