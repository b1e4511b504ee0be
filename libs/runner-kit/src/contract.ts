import { Bench, type ContractTarget } from './contract/bench';
import { momentContract } from './contract/checkpoint-moments';
import { checkpointContract } from './contract/checkpoints';
import { execContract } from './contract/execs';
import { filesContract } from './contract/files';
import { layerContract } from './contract/layers';
import { lifetimeContract } from './contract/lifetime';
import { type Lacking, limitsContract } from './contract/limits';
import { movingContract } from './contract/moving';
import { outputContract } from './contract/output';
import { terminalContract } from './contract/terminals';

export type { ContractTarget } from './contract/bench';
export { contractRunner } from './contract/runner';

type Group = (title: string, tests: () => void) => void;

/**
 * Registers the tests that every driver must pass. `group` is jest's `describe`, or one that skips and says
 * why. What the driver says that it lacks is skipped, with its reason. With VMUX_CONTRACT_FULL=1 the silent
 * command is silent for a minute; otherwise for a second.
 */
export function driverContract(
  name: string,
  openTarget: () => Promise<ContractTarget>,
  group: Group = describe,
  lacking: Lacking = {},
): void {
  group(`the driver contract on ${name}`, () => {
    const bench = new Bench(openTarget);
    beforeAll(() => bench.open(), 600_000);
    afterAll(() => bench.close(), 120_000);
    outputContract(bench);
    execContract(bench);
    terminalContract(bench);
    filesContract(bench);
    checkpointContract(bench);
    momentContract(bench);
    limitsContract(bench, lacking);
    lifetimeContract(bench);
  });
}

/** Registers the tests of drivers that keep checkpoints in a form beside the portable one. */
export function layersOn(
  name: string,
  openTarget: () => Promise<ContractTarget>,
  group: Group = describe,
): void {
  group(`checkpoints in the own form of ${name}`, () => {
    const bench = new Bench(openTarget);
    beforeAll(() => bench.open(), 600_000);
    afterAll(() => bench.close(), 120_000);
    layerContract(bench);
  });
}

/** Registers the tests of moving between two drivers whose sandboxes have the same root. */
export function movingBetween(
  name: string,
  openTargets: readonly [() => Promise<ContractTarget>, () => Promise<ContractTarget>],
  group: Group = describe,
): void {
  group(`moving between ${name}`, () => {
    const [one, other] = [new Bench(openTargets[0]), new Bench(openTargets[1])];
    beforeAll(async () => {
      await one.open();
      await other.open();
    }, 600_000);
    afterAll(async () => {
      await one.close();
      await other.close();
    }, 120_000);
    movingContract(one, other);
  });
}
