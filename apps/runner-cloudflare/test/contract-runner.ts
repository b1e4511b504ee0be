import { contractRunner } from '@vmux/runner-kit/contract';
import { workerFrom } from '../src/config';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';

const [settings, argument] = process.argv.slice(2);
if (!settings || !argument) throw new Error('usage: contract-runner SETTINGS ARGUMENT');
const { runnerId, env } = JSON.parse(settings);
const driver = new CloudflareDriver({ runnerId, worker: workerFrom(env) });
contractRunner(driver, argument).catch((fault) => {
  console.error(fault);
  process.exit(1);
});
