import { contractRunner } from '@vmux/runner-kit/contract';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';

const [settings, argument] = process.argv.slice(2);
if (!settings || !argument) throw new Error('usage: contract-runner SETTINGS ARGUMENT');
contractRunner(new CloudflareDriver(JSON.parse(settings)), argument).catch((fault) => {
  console.error(fault);
  process.exit(1);
});
