import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ArtifactDirectory } from '@vmux/artifacts';
import type { EventStore } from '@vmux/event-store';
import type { SandboxId } from '@vmux/runner-kit';
import { until } from '@vmux/testing';
import { cgroupNameOf, keyOf } from '../../apps/runner-local/src/drivers/ns-store';
import type { Cast } from '../support/cast';
import type { PatientClient } from './client';
import type { Engine } from './engine';
import { notErased } from './erased';
import type { Script } from './workload';

const ENDED_WITHIN_MS = 30_000;
const GONE_WITHIN_MS = 10_000;
const HIERARCHIES = ['.', 'memory', 'pids', 'freezer', 'cpu', 'unified'];

/** Deletes every session; says what of them is still there when that should be over. */
export async function deleteAll(
  cast: Cast,
  client: PatientClient,
  store: EventStore,
  script: Script,
  engine: Engine | null,
): Promise<string[]> {
  const sessions = [...script.sessions, ...script.time.sessions];
  for (const session of sessions) await client.call('DELETE', `/v1/sessions/${session}?force=true`);
  const left = async () => [
    ...remainsOf(cast),
    ...mountsBelow(cast, 'runner/ns/s'),
    ...((await engine?.remains()) ?? []),
    ...(await notErased(cast, store, [...sessions, ...script.time.deleted])),
  ];
  await until(async () => (await left()).length === 0, {
    timeoutMs: ENDED_WITHIN_MS,
    everyMs: 100,
  }).catch(() => undefined);
  return [...(await left()), ...(await uncollected(cast))];
}

/** What the runner keeps of sandboxes and their checkpoints, by directory. */
function remainsOf({ dir }: Cast): string[] {
  const kept = ['ns/s', 'ns/slots', 'ns/new', 'ns/store/d', 'ns/store/c', 'journal'];
  return kept.flatMap((name) =>
    namesIn(join(dir, 'runner', name)).map((file) => `left behind: ${name}/${file}`),
  );
}

/** No session is left, so that collecting leaves nothing but what is not its to know. */
async function uncollected({ dir }: Cast): Promise<string[]> {
  const root = join(dir, 'artifacts');
  if (!existsSync(root)) return [];
  const store = await ArtifactDirectory.at(root, 0);
  await store.collect({ checkpoints: [], bundles: [] });
  return ['chunks', 'content'].flatMap((part) =>
    namesIn(join(root, part)).flatMap((first) =>
      namesIn(join(root, part, first)).map((rest) => `never collected: ${part}/${first}/${rest}`),
    ),
  );
}

const namesIn = (directory: string): string[] =>
  existsSync(directory) ? readdirSync(directory) : [];

export function mountsBelow({ dir }: Cast, part: string): string[] {
  const below = join(dir, part);
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((at) => at.startsWith(`${below}/`))
    .map((at) => `left mounted: ${at}`);
}

/** What is left of these sandboxes on the machine; others may be at work beside this run. */
export function leftBehind(sandboxes: readonly SandboxId[]): string[] {
  const groups = sandboxes.flatMap((id) =>
    HIERARCHIES.map((hierarchy) =>
      join('/sys/fs/cgroup', hierarchy, 'vmux', cgroupNameOf(keyOf(id))),
    ).filter((path) => existsSync(path)),
  );
  const instances = new Set(sandboxes.map(({ instance }) => instance));
  const processes = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .map((pid) => commandOf(pid).join(' '))
    .filter((command) => instances.has(/--instance=(\S+)/.exec(command)?.[1] ?? ''));
  return [...groups, ...processes].map((what) => `left behind: ${what}`);
}

/** Whatever still names the directory that the run had to itself: processes, loop devices, mounts. */
export async function leftOfRun(dir: string): Promise<string[]> {
  const left = () => [
    ...(existsSync(dir) ? [dir] : []),
    ...processesOf(dir),
    ...namesIn('/sys/block')
      .map((name) => join('/sys/block', name, 'loop/backing_file'))
      .filter((file) => textOf(file).includes(dir)),
    ...textOf('/proc/self/mounts')
      .split('\n')
      .filter((line) => line.includes(dir)),
  ];
  await until(() => left().length === 0, { timeoutMs: GONE_WITHIN_MS, everyMs: 100 }).catch(
    () => undefined,
  );
  return left().map((what) => `left of the run: ${what}`);
}

const processesOf = (dir: string): string[] =>
  readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .filter((pid) =>
      ['cmdline', 'environ'].some((file) => textOf(`/proc/${pid}/${file}`).includes(dir)),
    )
    .map((pid) => `${pid} ${commandOf(pid).join(' ')}`);

/** What is looked at may end meanwhile. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

export function commandOf(pid: string): readonly string[] {
  return textOf(`/proc/${pid}/cmdline`).split('\0');
}
