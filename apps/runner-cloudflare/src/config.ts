import { readFileSync } from 'node:fs';
import { isLoopback } from '@vmux/runner-kit';
import { LEAST_KEY_CHARS } from '../../../workers/cloudflare/src/signature';

export interface WorkerAccess {
  readonly url: string;
  readonly key: string;
}

/** Where the Worker is and what it is signed to with; null when neither is set, which is not an error. */
export function workerFrom(env: NodeJS.ProcessEnv): WorkerAccess | null {
  const { CLOUDFLARE_WORKER_URL: given, CLOUDFLARE_WORKER_KEY_FILE: keyFile } = env;
  if (!given && !keyFile) return null;
  if (!given) throw new Error('set CLOUDFLARE_WORKER_URL to where the Worker is deployed');
  if (!keyFile)
    throw new Error('set CLOUDFLARE_WORKER_KEY_FILE to a file with the Worker’s secret VMUX_KEY');
  if (!URL.canParse(given)) throw new Error('set CLOUDFLARE_WORKER_URL to https://<name>');
  const { protocol, hostname, origin } = new URL(given);
  // Signatures do not hide what is said.
  if (protocol !== 'https:' && !(protocol === 'http:' && isLoopback(hostname)))
    throw new Error('set CLOUDFLARE_WORKER_URL to https://<name>: it is not on this machine');
  const key = readFileSync(keyFile, 'utf8').trim();
  if (key.length < LEAST_KEY_CHARS)
    throw new Error(`the key in ${keyFile} has less than ${LEAST_KEY_CHARS} characters`);
  return { url: origin, key };
}
