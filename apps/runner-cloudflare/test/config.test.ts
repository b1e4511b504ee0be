import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { workerFrom } from '../src/config';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';

afterAll(releaseAll);

const keyFileWith = (key: string): string => {
  const file = join(temporaryDirectory('key'), 'key');
  writeFileSync(file, `${key}\n`, { mode: 0o600 });
  return file;
};
const key = 'k'.repeat(43);

describe('the settings of a Cloudflare runner', () => {
  it('may be absent: the provider is then unavailable, in one line that says what to do', async () => {
    const driver = new CloudflareDriver({ runnerId: 'cloudflare', worker: workerFrom({}) });
    const { available, reason, offered } = await driver.capabilities();
    expect([available, offered]).toEqual([false, []]);
    expect(reason).toMatch(/^[^\n]*CLOUDFLARE_WORKER_URL and CLOUDFLARE_WORKER_KEY_FILE$/);
  });

  it('name a Worker behind TLS, or one on this machine', () => {
    const env = (CLOUDFLARE_WORKER_URL: string) => ({
      CLOUDFLARE_WORKER_URL,
      CLOUDFLARE_WORKER_KEY_FILE: keyFileWith(key),
    });
    expect(workerFrom(env('https://vmux.example.workers.dev/'))).toEqual({
      url: 'https://vmux.example.workers.dev',
      key,
    });
    expect(workerFrom(env('http://127.0.0.1:8787'))).toMatchObject({ key });
    for (const url of ['http://vmux.example.workers.dev', 'ftp://127.0.0.1', 'vmux'])
      expect(() => workerFrom(env(url))).toThrow('CLOUDFLARE_WORKER_URL');
  });

  it('are whole: an address without a key, a key without an address or a short key is refused', () => {
    const url = 'https://vmux.example.workers.dev';
    expect(() => workerFrom({ CLOUDFLARE_WORKER_URL: url })).toThrow('CLOUDFLARE_WORKER_KEY_FILE');
    const file = keyFileWith(key);
    expect(() => workerFrom({ CLOUDFLARE_WORKER_KEY_FILE: file })).toThrow('CLOUDFLARE_WORKER_URL');
    const short = { CLOUDFLARE_WORKER_URL: url, CLOUDFLARE_WORKER_KEY_FILE: keyFileWith('short') };
    expect(() => workerFrom(short)).toThrow('less than 32 characters');
  });
});
