import { contractRunner } from '@vmux/runner-kit/contract';
import { DockerDriver } from '../src/drivers/docker-driver';

const [settings, argument] = process.argv.slice(2);
if (!settings || !argument) throw new Error('usage: docker-contract-runner SETTINGS ARGUMENT');
contractRunner(new DockerDriver(JSON.parse(settings)), argument).catch((fault) => {
  console.error(fault);
  process.exit(1);
});
