import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Redis, releaseAll, startRedis, until } from '@vmux/testing';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { redisUrlFrom } from '../src/projections/redis-url';

let stack: Stack;
let redis: Redis;
let gateways: Gateway[];

beforeAll(async () => {
  stack = await startStack();
  redis = await startRedis({ password: 'p@ss/word' });
  const passwordFile = join(stack.dir, 'redis.password');
  writeFileSync(passwordFile, 'p@ss/word\n', { mode: 0o600 });
  const env = {
    REDIS_URL: `redis://127.0.0.1:${redis.port}`,
    REDIS_PASSWORD_FILE: passwordFile,
  };
  startRunner(stack);
  await startService(stack);
  const first = await startGateway(stack, 'gateway-1', env);
  gateways = [first, await startGateway(stack, 'gateway-2', env)];
}, 60_000);
afterAll(releaseAll);

const create = (gateway: Gateway | undefined, name: string) =>
  gateway?.api.post('/v1/sessions', { name });
const list = (gateway: Gateway, after = '0') => gateway.api.get(`/v1/sessions?after=${after}`);

describe('gateways that share their lists in Redis', () => {
  it('show each what was done by the other', async () => {
    const made = await create(gateways[0], 'shared');
    for (const gateway of gateways) {
      const { json } = await list(gateway, made?.json.position);
      expect(json.sessions).toMatchObject([{ id: made?.json.id, name: 'shared' }]);
    }
  });

  it('lose nothing but lists while Redis is away', async () => {
    await redis.kill();
    for (const gateway of gateways) {
      await until(async () => (await list(gateway)).status === 503);
      const refused = await list(gateway);
      expect(refused.json.code).toBe('index_unavailable');
      expect(refused.headers.get('retry-after')).toBe('1');
    }
    const made = await create(gateways[1], 'meanwhile');
    expect(made?.status).toBe(201);
    const path = `/v1/sessions/${made?.json.id}/execs?wait=20s`;
    expect((await gateways[0]?.api.post(path, { command: 'hello' }))?.json).toMatchObject({
      output: { stdout: { text: 'hello' } },
    });
    await redis.restart();
    for (const gateway of gateways) {
      const shown = await until(async () => {
        const { status, json } = await list(gateway, made?.json.position);
        return status === 200 && json.sessions;
      });
      expect(shown.map(({ name }: { name: string }) => name)).toEqual(['meanwhile', 'shared']);
    }
  });
});

describe('the address of Redis', () => {
  it('is none without REDIS_URL, and refused when it is no address of one', () => {
    expect(redisUrlFrom({})).toBeNull();
    expect(redisUrlFrom({ REDIS_URL: 'rediss://cache:6380/1' })).toBe('rediss://cache:6380/1');
    expect(() => redisUrlFrom({ REDIS_URL: 'localhost:6379' })).toThrow('REDIS_URL');
    expect(() => redisUrlFrom({ REDIS_URL: 'http://cache' })).toThrow('REDIS_URL');
  });
});
