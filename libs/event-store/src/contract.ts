import { appendContract } from './contract/append';
import { readContract } from './contract/read';
import { reconnectContract } from './contract/reconnect';
import { subscribeContract } from './contract/subscribe';
import { Bench, type ContractServer, type Permissions } from './contract/tools';

export type { ContractServer, Permissions } from './contract/tools';

/** Registers the tests that every server behind the port must pass. */
export function eventStoreContract(
  name: string,
  openServer: () => Promise<ContractServer>,
  permissions: Permissions,
): void {
  describe(`the event store port on ${name}`, () => {
    const bench = new Bench(openServer);
    beforeAll(() => bench.open());
    afterAll(() => bench.close());
    appendContract(bench, permissions);
    readContract(bench);
    subscribeContract(bench);
    reconnectContract(bench, permissions);
  });
}
