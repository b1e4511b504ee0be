import type { SandboxDriver, SandboxSpec } from '../driver';
import { type StartExec, SupervisorClient } from '../supervisor-client';

/**
 * A runner that does one thing: it creates the sandbox, starts the command and prints how far it has read.
 * The contract kills it on the way. `argument` is the JSON of {spec, exec}.
 */
export async function contractRunner(driver: SandboxDriver, argument: string): Promise<void> {
  const { spec, exec }: { spec: SandboxSpec; exec: StartExec } = JSON.parse(argument);
  await driver.create(spec);
  const client = await SupervisorClient.connect(await driver.openPipe(spec.id), spec.id);
  await client.start(exec);
  for await (const item of client.read(exec.execId))
    if ('data' in item) console.log(`read ${(item.mergedOffset ?? 0) + item.data.length}`);
  throw new Error('the contract runner was not killed in time');
}
