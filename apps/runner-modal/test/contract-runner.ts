import { contractRunner } from '@vmux/runner-kit/contract';
import { ModalDriver } from '../src/drivers/modal-driver';

const [settings, argument] = process.argv.slice(2);
if (!settings || !argument) throw new Error('usage: contract-runner SETTINGS ARGUMENT');
contractRunner(new ModalDriver(JSON.parse(settings)), argument).catch((fault) => {
  console.error(fault);
  process.exit(1);
});
