import type { Heartbeat } from '@vmux/events';
import { expectCapable, expectFits, expectGpu } from '../src/application/provider-limits';
import { RunnerBoard } from '../src/application/runner-board';

const resources = { cpus: 1, memoryMiB: 1024, diskMiB: 1024, pids: 64, gpu: null };

describe('what a provider never has', () => {
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

describe('what a provider’s runner says that it has', () => {
  const offer: Heartbeat['providers'][number] = {
    ...{ provider: 'gpus', available: true, reason: null, emulated: false },
    capabilities: ['gpu', 'build'],
    gpus: { T4: 8, A10: 4 },
  };
  const plain = { ...offer, provider: 'plain', capabilities: [], gpus: undefined };
  const board = new RunnerBoard();
  board.take({
    ...{ runnerId: 'r', incarnation: '1', at: 0, draining: false, tunnel: null },
    providers: [offer, plain],
    capacity: { sandboxes: 0, maxSandboxes: 1, freeMemoryMiB: 0, freeDiskMiB: 0, cpus: 1, load: 0 },
  });

  it('is told when another GPU is asked for, or too many', () => {
    for (const gpu of [null, 'T4', 't4:8', 'A10:4']) expectGpu(board, 'gpus', gpu);
    expect(() => expectGpu(board, 'gpus', 'RTX3090')).toThrow('choose one of T4, A10');
    expect(() => expectGpu(board, 'gpus', 'A10:5')).toThrow('has 1 to 4 of A10, not 5');
    expect(() => expectGpu(board, 'gpus', 'A10:0')).toThrow('not 0');
    expect(() => expectGpu(board, 'gpus', 'T4:x')).toThrow('no GPU');
    expectGpu(board, 'elsewhere', 'RTX3090');
  });

  it('is all that a dry run lets through', () => {
    const build = ['make'];
    expectCapable(board, 'gpus', { resources: { ...resources, gpu: 'T4' }, build });
    expectCapable(board, 'plain', { resources });
    expect(() => expectCapable(board, 'plain', { resources, build })).toThrow('has no build here');
    expect(() => expectCapable(board, 'elsewhere', { resources })).toThrow('no runner offers');
  });
});
