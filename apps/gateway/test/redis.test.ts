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
import { RateLimit } from '../src/application/rate-limit';
import { redisUrlFrom } from '../src/projections/redis-url';
import { RedisLink } from '../src/shared/redis-link';

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

  it('take each other’s tickets, once', async () => {
    const [one, two] = gateways as [Gateway, Gateway];
    const { json } = await one.api.post('/v1/sessions', { name: 'ticketed' });
    const { json: issued } = await one.api.post(`/v1/sessions/${json.id}/tickets`, {});
    const path = `/v1/sessions/${json.id}/logs?ticket=${issued.ticket}`;
    expect((await two.api.withKey(null).get(path)).status).toBe(200);
    for (const { api } of gateways) expect((await api.withKey(null).get(path)).status).toBe(401);
  });

  it('count together what one caller asks of each', async () => {
    const here = new RateLimit(1, 1_000_000);
    const there = new RateLimit(1, 1_000);
    const links = [here, there].map((limit) => {
      const link = new RedisLink({ url: redis.url, onFault: () => undefined, tellEveryMs: 20 });
      link.share('test', limit);
      return link;
    });
    try {
      // By itself the other one would let far more through than is asked of it in that time.
      const refused = () => {
        for (let at = 0; at < 100; at += 1) here.take('busy');
        return there.take('busy') !== null;
      };
      await until(refused, { timeoutMs: 5_000, everyMs: 20 });
      expect(there.take('idle')).toBeNull();
    } finally {
      for (const link of links) link.onModuleDestroy();
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
      expect(shown.map(({ name }: { name: string }) => name)).toEqual([
        ...['meanwhile', 'ticketed', 'shared'],
      ]);
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
