import { describeUnless, releaseAll } from '@vmux/testing';
import { HEADERS, sign } from '../../../workers/cloudflare/src/signature';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';
import { isRoot, startTestEmulator, type TestEmulator } from './emulator';

const group = describeUnless(isRoot, 'the emulator’s containers are namespaces, which need root');

afterAll(releaseAll);

group('signatures to the Cloudflare Worker', () => {
  let emulator: TestEmulator;
  beforeAll(async () => {
    emulator = await startTestEmulator();
  }, 120_000);

  const body = new Uint8Array();
  const get = async (headers: Record<string, string>, path = '/v1/about') => {
    const answer = await fetch(`${emulator.url}${path}`, { headers });
    return { status: answer.status, ...((await answer.json()) as { code?: string }) };
  };
  const signedHeaders = (key = emulator.key, atMs?: number) =>
    sign(key, { method: 'GET', target: '/v1/about', runner: 'one', body }, atMs);

  it('are needed for everything', async () => {
    expect(await get({})).toMatchObject({ status: 401, code: 'unsigned' });
    expect(await get({}, '/v1/sandboxes')).toMatchObject({ status: 401 });
    expect(await get({}, '/')).toMatchObject({ status: 401 });
    expect(await get(await signedHeaders())).toMatchObject({ status: 200 });
  });

  it('of another key, another runner or another request are refused', async () => {
    const wrong = await signedHeaders('x'.repeat(64));
    expect(await get(wrong)).toMatchObject({ status: 401, code: 'unsigned' });
    const borrowed = { ...(await signedHeaders()), [HEADERS.runner]: 'two' };
    expect(await get(borrowed)).toMatchObject({ status: 401, code: 'unsigned' });
    const elsewhere = await get(await signedHeaders(), '/v1/sandboxes');
    expect(elsewhere).toMatchObject({ status: 401, code: 'unsigned' });
  });

  it('that are too old or too new are refused', async () => {
    for (const offMs of [-61_000, 61_000])
      expect(await get(await signedHeaders(emulator.key, Date.now() + offMs))).toMatchObject({
        status: 401,
        code: 'expired',
      });
  });

  it('are taken once, also after the Worker was started again', async () => {
    const headers = await signedHeaders();
    expect(await get(headers)).toMatchObject({ status: 200 });
    expect(await get(headers)).toMatchObject({ status: 401, code: 'replayed' });
    await emulator.restart();
    expect(await get(headers)).toMatchObject({ status: 401, code: 'replayed' });
  }, 90_000);

  it('do not help while it has no key', async () => {
    const keyless = await startTestEmulator({ VMUX_EMULATOR_NO_KEY: '1' });
    const driver = new CloudflareDriver({ runnerId: 'one', worker: keyless });
    expect(await driver.capabilities()).toMatchObject({
      available: false,
      reason: expect.stringContaining('VMUX_KEY'),
    });
  }, 90_000);
});
