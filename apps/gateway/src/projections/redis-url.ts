import { readFileSync } from 'node:fs';

/** REDIS_URL, with the password that REDIS_PASSWORD_FILE holds; null when there is no Redis. */
export function redisUrlFrom(env: NodeJS.ProcessEnv): string | null {
  const { REDIS_URL: text, REDIS_PASSWORD_FILE: file } = env;
  if (!text) return null;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'redis:' && url?.protocol !== 'rediss:')
    throw new Error('set REDIS_URL to redis://host:port, or to rediss://host:port with TLS');
  if (file) url.password = encodeURIComponent(readFileSync(file, 'utf8').trim());
  return url.href;
}
