import type { SessionSpec } from '@vmux/events';
import { applySandbox } from '../src/application/sandbox-view';
import { costJson } from '../src/application/session-cost';
import { type SessionView, unborn } from '../src/application/session-view';

const resources = { cpus: 0.5, memoryMiB: 4096, diskMiB: 4000, pids: 64, gpu: null };

function viewWith(more: Partial<SessionView> = {}): SessionView {
  const spec = { resources } as unknown as SessionSpec;
  return Object.assign(unborn('priced-0a1b'), { spec, ...more });
}

describe('what a session has cost', () => {
  const hourMs = 3_600_000;

  it('is what its instance type holds, and at most its processors besides', () => {
    const cost = costJson(viewWith({ ranMs: { cloudflare: hourMs } }), 0);
    // standard-1: 4 GiB, 8 GB and half a processor for an hour.
    const leastUsd = 3600 * (4 * 0.0000025 + 8 * 0.00000007);
    expect(cost).toMatchObject({ estimated: true, leastUsd });
    expect(cost?.mostUsd).toBeCloseTo(leastUsd + 3600 * 0.5 * 0.00002, 6);
    expect(cost?.byProvider[0]?.prices).toMatchObject({ readOn: expect.any(String) });
  });

  it('is by GPU and second on Modal', () => {
    const view = viewWith({ ranMs: { modal: hourMs } });
    const gpu = { ...resources, gpu: 'h100:2' };
    view.spec = { resources: gpu } as unknown as SessionSpec;
    const besides = 3600 * (0.25 * 0.00003942 + 4 * 0.00000672);
    expect(costJson(view, 0)?.leastUsd).toBeCloseTo(3600 * 2 * 0.001097 + besides, 6);
  });

  it('grows while a sandbox runs and is told for each provider that sends a bill', () => {
    const sandbox = { epoch: 2, instance: 'i', runnerId: 'cloudflare', startedAt: 1_000 };
    const view = viewWith({ provider: 'cloudflare', sandbox, ranMs: { ns: hourMs } });
    const [first, later] = [costJson(view, 61_000), costJson(view, 121_000)];
    expect(first?.byProvider).toMatchObject([{ provider: 'cloudflare', ranMs: 60_000 }]);
    expect(later?.leastUsd).toBeGreaterThan(first?.leastUsd ?? 0);
    expect(costJson(viewWith({ ranMs: { ns: hourMs } }), 0)).toBeNull();
  });

  it('counts every sandbox for as long as it ran', () => {
    const view = viewWith();
    const starts = (epoch: number, provider: string, at: number) => {
      view.pending = { epoch, provider, runnerId: 'r' };
      const data = { at, epoch, instance: `i${epoch}`, runnerId: 'r', base: null };
      applySandbox(view, { type: 'SandboxStarted', data } as Parameters<typeof applySandbox>[1]);
    };
    starts(1, 'ns', 1_000);
    starts(2, 'cloudflare', 5_000);
    const data = { at: 12_000, epoch: 2 };
    applySandbox(view, { type: 'SandboxReleased', data } as Parameters<typeof applySandbox>[1]);
    starts(3, 'cloudflare', 20_000);
    expect(view.ranMs).toEqual({ ns: 4_000, cloudflare: 7_000 });
    expect(costJson(view, 23_000)?.byProvider).toMatchObject([{ ranMs: 10_000 }]);
  });
});
