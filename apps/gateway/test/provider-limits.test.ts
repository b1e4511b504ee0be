import { expectFits } from '../src/application/provider-limits';

describe('what a provider never has', () => {
  const resources = { cpus: 1, memoryMiB: 1024, diskMiB: 1024, pids: 64, gpu: null };

  it('is refused on Cloudflare beyond its largest instance, with its size', () => {
    expectFits('cloudflare', { ...resources, cpus: 4, memoryMiB: 12_288 });
    for (const more of [{ cpus: 8 }, { memoryMiB: 16_384 }, { diskMiB: 50_000 }])
      expect(() => expectFits('cloudflare', { ...resources, ...more })).toThrow(
        'at most 4 vCPU, 12288 MiB',
      );
  });

  it('is not decided for machines whose size only their runner knows', () => {
    expectFits('ns', { ...resources, cpus: 64, memoryMiB: 1_000_000 });
  });
});
