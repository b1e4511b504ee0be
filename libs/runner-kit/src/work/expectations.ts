import type { OtherLimit, SandboxDriver } from '../driver';
import { DriverRefused } from '../errors';

/** What a session asks for and a driver cannot do is refused before anything is made. */

export async function expectBuilds(driver: SandboxDriver): Promise<void> {
  const { offered, missing } = await driver.capabilities();
  if (offered.includes('build')) return;
  const why = missing.build ?? `${driver.provider} builds no images`;
  throw new DriverRefused('unsupported', `${why}: name an image that is ready`);
}

const LIMITED: Readonly<Record<OtherLimit, string>> = {
  memoryLimit: 'memory',
  cpuLimit: 'processors',
  pidsLimit: 'processes',
};

/** The defaults of who names none are not among them: those hold where they can. */
export async function expectLimits(
  driver: SandboxDriver,
  needed: readonly OtherLimit[],
): Promise<void> {
  if (needed.length === 0) return;
  const { missing } = await driver.capabilities();
  for (const limit of needed) {
    const why = missing[limit];
    if (why === undefined) continue;
    const what = LIMITED[limit];
    throw new DriverRefused(
      'unsupported',
      `the ${what} of a sandbox of ${driver.provider} cannot be limited here (${why}): name no ${what}, or another provider`,
    );
  }
}
