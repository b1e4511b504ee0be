import { contractRunner } from '@vmux/runner-kit/contract';
import { NsDriver } from '../src/drivers/ns-driver';

const [options, argument] = process.argv.slice(2);
if (!options || !argument) throw new Error('usage: ns-contract-runner OPTIONS ARGUMENT');
contractRunner(new NsDriver(JSON.parse(options)), argument).catch((fault) => {
  console.error(fault);
  process.exit(1);
});
