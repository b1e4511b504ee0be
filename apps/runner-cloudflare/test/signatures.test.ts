import { request } from 'node:http';
import { describeUnless, releaseAll } from '@vmux/testing';
import { HEADERS, sign, verify, WINDOW_MS } from '../../../workers/cloudflare/src/signature';
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

  it('are looked for in a body no further than a body may be long', async () => {
    const call = request(`${emulator.url}/v1/sandboxes/s/1/i`, { method: 'PUT' });
    const status = new Promise<number | undefined>((resolve, reject) => {
      call.on('response', ({ statusCode }) => resolve(statusCode));
      call.on('error', reject);
    });
    // Its end never comes.
    call.write(Buffer.alloc(70_000));
    try {
      expect(await status).toBe(400);
    } finally {
      call.destroy();
    }
  });

  it('are remembered for longer than any is taken', async () => {
    const atMs = Date.now();
    const asked = { method: 'GET', target: '/v1/about', runner: 'one', body };
    const headers = await sign(emulator.key, asked, atMs);
    const header = (name: string) => headers[name] ?? null;
    const proof = await verify([emulator.key], asked, header, atMs + WINDOW_MS);
    expect(proof).toMatchObject({ verdict: 'genuine', voidAtMs: atMs + 2 * WINDOW_MS });
  });

  it('are taken once, also after the Worker was started again', async () => {
    const headers = await signedHeaders();
    expect(await get(headers)).toMatchObject({ status: 200 });
    expect(await get(headers)).toMatchObject({ status: 401, code: 'replayed' });
    await emulator.restart();
    expect(await get(headers)).toMatchObject({ status: 401, code: 'replayed' });
  }, 90_000);

  it('do not make an odd request less odd: each is refused as such, and none is a fault', async () => {
    const limits = { cpus: 1, memoryMiB: 256, diskMiB: 256, pids: 64 };
    const create = { limits, egress: false, restoreFrom: null };
    const at = '/v1/sandboxes/s/1/i';
    const odd: readonly (readonly [string, string, unknown, number])[] = [
      ['GET', '/', undefined, 404],
      ['GET', '/v1', undefined, 404],
      ['POST', '/v1/about', undefined, 404],
      ['GET', '/v1/about/more', undefined, 404],
      ['DELETE', '/v1/sandboxes', undefined, 404],
      ['GET', '/v1/sandboxes/', undefined, 404],
      ['GET', '/v1/sandboxes/s', undefined, 400],
      ['GET', '/v1/sandboxes/UPPER/1/i', undefined, 400],
      ['GET', '/v1/sandboxes/s/0/i', undefined, 400],
      ['GET', '/v1/sandboxes/s/1e3/i', undefined, 400],
      ['GET', '/v1/sandboxes/s/-1/i', undefined, 400],
      ['GET', '/v1/sandboxes/s/1/%ff', undefined, 400],
      ['GET', '/v1/sandboxes/s/1/.hidden', undefined, 400],
      ['PATCH', at, undefined, 404],
      ['GET', `${at}/adopt`, undefined, 404],
      ['PUT', at, undefined, 400],
      ['PUT', at, [], 400],
      ['PUT', at, { ...create, limits: null }, 400],
      ['PUT', at, { ...create, limits: { ...limits, pids: 1.5 } }, 400],
      ['PUT', at, { ...create, limits: { ...limits, cpus: '1' } }, 400],
      ['PUT', at, { ...create, egress: 1 }, 400],
      ['PUT', at, { ...create, egress: true }, 422],
      ['PUT', at, { ...create, restoreFrom: 7 }, 400],
      ['PUT', at, { ...create, restoreFrom: 'x'.repeat(70_000) }, 400],
      ['PUT', at, { ...create, limits: { ...limits, cpus: 1e9 } }, 422],
      ['POST', `${at}/checkpoint`, undefined, 410],
      ['GET', `${at}/pipe`, undefined, 410],
      ['GET', `${at}/ports/8080/`, undefined, 410],
      ['GET', `${at}/ports/22/`, undefined, 422],
      ['GET', `${at}/ports/99999/`, undefined, 422],
      ['GET', `${at}/ports/`, undefined, 422],
    ];
    for (const [method, target, content, status] of odd) {
      const text = content === undefined ? '' : JSON.stringify(content);
      const signed = { method, target, runner: 'one', body: Buffer.from(text) };
      const answer = await fetch(`${emulator.url}${target}`, {
        method,
        headers: await sign(emulator.key, signed),
        ...(content === undefined ? {} : { body: text }),
      });
      const { code } = (await answer.json()) as { code: string };
      expect([method, target, answer.status]).toEqual([method, target, status]);
      expect(code).toMatch(/^(not_found|invalid|unsupported|sandbox_lost)$/);
    }
    const oddRunner = { method: 'GET', target: '/v1/about', runner: 'A B', body };
    expect(await get(await sign(emulator.key, oddRunner))).toMatchObject({ status: 400 });
  });

  it('do not help while it has no key', async () => {
    const keyless = await startTestEmulator({ VMUX_EMULATOR_NO_KEY: '1' });
    const driver = new CloudflareDriver({ runnerId: 'one', worker: keyless });
    expect(await driver.capabilities()).toMatchObject({
      available: false,
      reason: expect.stringContaining('VMUX_KEY'),
    });
  }, 90_000);
});
