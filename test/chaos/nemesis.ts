import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SeededRandom } from '@vmux/testing';
import type { Actor, Cast } from '../support/cast';

export type FaultKind = 'kill' | 'freeze' | 'kill nats and its state' | 'kill a sandbox';

export interface Faults {
  readonly counts: Record<string, number>;
  /** Sessions that lost a sandbox to this nemesis: what ran in it may end unknown. */
  readonly struck: Set<string>;
}

/** One fault after the other, at random, until told to stop; then everything runs again. */
export async function torment(
  cast: Cast,
  random: SeededRandom,
  faults: Faults,
  isOpen: () => boolean,
): Promise<void> {
  while (isOpen()) {
    await pause(300 + random.integer(1_200));
    const kind = random.pick<FaultKind>([
      'kill',
      'kill',
      'kill',
      'freeze',
      'freeze',
      'kill nats and its state',
      'kill a sandbox',
    ]);
    const actor = random.pick(cast.actors);
    const name = kind === 'kill' || kind === 'freeze' ? `${kind} ${actor.name}` : kind;
    await strike(kind, actor, cast, random, faults);
    faults.counts[name] = (faults.counts[name] ?? 0) + 1;
  }
}

async function strike(
  kind: FaultKind,
  actor: Actor,
  cast: Cast,
  random: SeededRandom,
  faults: Faults,
): Promise<void> {
  if (kind === 'kill') {
    await actor.kill();
    await pause(random.integer(800));
    await actor.start();
  } else if (kind === 'freeze') {
    actor.signal('SIGSTOP');
    await pause(200 + random.integer(2_000));
    actor.signal('SIGCONT');
  } else if (kind === 'kill nats and its state') {
    const nats = cast.actors.find(({ name }) => name === 'nats');
    await nats?.kill();
    nats?.forget();
    await nats?.start();
  } else {
    killSandbox(cast.sandboxesDir, random, faults);
  }
}

/** Ends the first process of some sandbox behind everybody's back. */
function killSandbox(directory: string, random: SeededRandom, faults: Faults): void {
  const sandboxes = readdirSync(directory);
  if (sandboxes.length === 0) return;
  const chosen = join(directory, random.pick(sandboxes));
  try {
    const session = /"sessionId":\s*"([^"]+)"/.exec(
      readFileSync(join(chosen, 'state.json'), 'utf8'),
    )?.[1];
    const pid = Number(readFileSync(join(chosen, 'pid'), 'utf8').split(' ')[0]);
    if (!session || !(pid > 1)) return;
    faults.struck.add(session);
    process.kill(pid, 'SIGKILL');
  } catch (fault) {
    // It is being made or removed at this moment.
    const { code } = fault as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ESRCH') throw fault;
  }
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
