import { ArtifactDirectory } from '@vmux/artifacts';
import type { Checkpoint } from '@vmux/events';
import type { SandboxDriver, SandboxId, SandboxSpec } from '../driver';
import { type StartExec, SupervisorClient } from '../supervisor-client';
import { FileIndex } from '../work/checkpoint-index';
import { restoreCheckpoint } from '../work/restore-checkpoint';
import { takeCheckpoint } from '../work/take-checkpoint';

/** What the runner is to do until it is killed. */
export type ContractWork =
  | { readonly spec: SandboxSpec; readonly exec: StartExec }
  | { readonly take: SandboxId; readonly storeDirectory: string }
  | {
      readonly restore: SandboxId;
      readonly checkpoint: Checkpoint;
      readonly storeDirectory: string;
    };

/**
 * A runner that does one thing, says how far it is, and is killed on the way by the contract. `argument` is
 * the JSON of the work.
 */
export async function contractRunner(driver: SandboxDriver, argument: string): Promise<void> {
  const work: ContractWork = JSON.parse(argument);
  if ('take' in work) await takeAgainAndAgain(driver, work);
  else if ('restore' in work) await restoreAgainAndAgain(driver, work);
  else await readToTheEnd(driver, work);
  throw new Error('the contract runner was not killed in time');
}

type Work<K extends string> = Extract<ContractWork, Record<K, unknown>>;
const { signal } = new AbortController();
const connect = async (driver: SandboxDriver, id: SandboxId) =>
  SupervisorClient.connect(await driver.openPipe(id), id);

/** The sandbox is created, the command started and read. */
async function readToTheEnd(driver: SandboxDriver, { spec, exec }: Work<'spec'>): Promise<void> {
  await driver.create(spec);
  const client = await connect(driver, spec.id);
  await client.start(exec);
  for await (const item of client.read(exec.execId))
    if ('data' in item) console.log(`read ${(item.mergedOffset ?? 0) + item.data.length}`);
}

async function takeAgainAndAgain(
  driver: SandboxDriver,
  { take: id, storeDirectory }: Work<'take'>,
): Promise<void> {
  const { chunks } = await ArtifactDirectory.at(storeDirectory);
  const client = await connect(driver, id);
  const base = { image: null, digest: null, distribution: null, architecture: 'unknown' };
  for (;;) {
    console.log('began');
    await takeCheckpoint({
      client,
      store: chunks,
      index: new FileIndex(),
      base,
      removed: async () => (await driver.removed?.(id)) ?? [],
      maxBytes: 2 ** 33,
      hold: false,
      signal,
    });
  }
}

async function restoreAgainAndAgain(
  driver: SandboxDriver,
  { restore: id, checkpoint, storeDirectory }: Work<'restore'>,
): Promise<void> {
  const { chunks } = await ArtifactDirectory.at(storeDirectory);
  const client = await connect(driver, id);
  const index = new FileIndex();
  const { base } = checkpoint;
  for (;;) {
    console.log('began');
    const settings = { client, store: chunks, index, base, allowBaseChange: true, signal };
    await restoreCheckpoint(checkpoint, settings);
  }
}
