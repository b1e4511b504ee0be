import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, type Vmux } from '@vmux/sdk';
import { Failure } from './failure';
import { type Offer, offersOf } from './offers';
import { dataPathOf } from './stack/data-directory';
import { runningStack } from './stack/stack-record';
import { visible } from './terminal/escape';
import { say } from './terminal/output';

interface Choice {
  readonly provider: string;
  /** Of the stack that it was tried on: another one is another chance. */
  readonly stack: string;
}

/** A runner says nothing of what is not there at all. */
const notOffered: Readonly<Record<string, string>> = {
  docker: 'no engine answers',
  ns: 'needs Linux',
};
const tryForMs = 60_000;
const heardWithinMs = 5_000;

/**
 * The provider of this machine's stack for who names none: namespaces for root, else Docker when it
 * answers, else namespaces without root. Whether one works is tried by running /bin/true in it, once for
 * each start of the stack.
 */
export async function chosenProvider(vmux: Vmux): Promise<string> {
  const directory = dataPathOf(process.env);
  const stack = runningStack(directory)?.started ?? '';
  const file = join(directory, 'provider.json');
  const known = readChoice(file);
  if (known && known.stack === stack) return known.provider;
  const provider = await tried(vmux);
  const choice: Choice = { provider, stack };
  writeFileSync(file, `${JSON.stringify(choice)}\n`, { mode: 0o600 });
  return provider;
}

async function tried(vmux: Vmux): Promise<string> {
  const order = process.getuid?.() === 0 ? ['ns', 'docker'] : ['docker', 'ns'];
  const offers = await firstOffers(vmux);
  const failures: string[] = [];
  for (const provider of order) {
    const offer = offers.find((each) => each.provider === provider);
    const refused = !offer
      ? notOffered[provider]
      : offer.available
        ? await faultOf(vmux, provider)
        : (offer.reason ?? 'not available');
    if (refused === null) {
      await say(`provider ${provider}: ${because(provider, failures)}, and /bin/true runs in it`);
      return provider;
    }
    failures.push(`${provider}: ${refused}`);
  }
  throw new Failure(
    `no sandbox can be made here (${failures.join('; ')})`,
    'vmux doctor says what to do; or name a provider that is elsewhere: --provider',
  );
}

/** Why it is this one, after those that could not. */
function because(provider: string, failures: readonly string[]): string {
  const who = process.getuid?.() === 0 ? 'this is root' : 'this is not root';
  const answers = provider === 'docker' ? ['the Docker engine answers'] : [];
  return [who, ...failures, ...answers].join('; ');
}

/** A runner that has just been started has not been heard of yet. */
async function firstOffers(vmux: Vmux): Promise<readonly Offer[]> {
  const deadline = Date.now() + heardWithinMs;
  for (;;) {
    const offers = await offersOf(vmux);
    if (offers.length > 0 || Date.now() > deadline) return offers;
    await sleep(50);
  }
}

/** Null when /bin/true ran in a sandbox of the provider. */
async function faultOf(vmux: Vmux, provider: string): Promise<string | null> {
  const signal = AbortSignal.timeout(tryForMs);
  try {
    const sandbox = await Sandbox.create({ vmux, provider, name: 'probe', signal });
    try {
      const { exit } = await sandbox.commands.run(['/bin/true'], { signal });
      if (exit.kind === 'exited' && exit.code === 0) return null;
      const { message } = await sandbox.info({ signal });
      return visible(message ?? `/bin/true ended with ${JSON.stringify(exit)}`);
    } finally {
      await sandbox.delete({ force: true });
    }
  } catch (fault) {
    return visible((fault as Error).message);
  }
}

function readChoice(file: string): Choice | null {
  try {
    const { provider, stack } = JSON.parse(readFileSync(file, 'utf8')) as Partial<Choice>;
    return provider && stack ? { provider, stack } : null;
  } catch (fault) {
    if (fault instanceof SyntaxError || (fault as NodeJS.ErrnoException).code === 'ENOENT')
      return null;
    throw fault;
  }
}
