import type { SandboxDriver } from '../src/driver';
import { DriverRefused } from '../src/errors';
import { expectLimits } from '../src/work/expectations';

const driver = {
  provider: 'ns',
  capabilities: async () => ({
    ...{ available: true, reason: null, offered: [] },
    missing: { memoryLimit: 'control groups need root' },
  }),
} as unknown as SandboxDriver;

describe('Limits that a session names', () => {
  it('are refused where they cannot be enforced, with the reason', async () => {
    const asked = expectLimits(driver, ['cpuLimit', 'memoryLimit']);
    await expect(asked).rejects.toBeInstanceOf(DriverRefused);
    await expect(asked).rejects.toMatchObject({
      reason: 'unsupported',
      message: expect.stringContaining('control groups need root'),
    });
  });

  it('are taken where they can, and nothing is asked of who names none', async () => {
    await expectLimits(driver, ['cpuLimit', 'pidsLimit']);
    await expectLimits(driver, []);
  });
});
