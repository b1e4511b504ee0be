import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logStream, sessionStream } from '@vmux/events';
import {
  projectRoot,
  releaseAll,
  seededRandom,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import {
  anEvent,
  everything,
  history,
  startGuardedWorld,
  startRelayProcess,
  startWorld,
  type World,
} from './relay-harness';

const sessions = ['web-0a1b', 'train-77ff'];
const random = seededRandom(5);

interface Line {
  readonly checkpoint: { readonly position: string };
  readonly record: { readonly offset: number; readonly b64: string; readonly id: string };
}

describe('a consumer of the relayed events', () => {
  let world: World;
  let dir: string;
  const consumer = (env: NodeJS.ProcessEnv = {}) =>
    startProcess({
      command: process.execPath,
      args: [join(projectRoot(), 'examples/consumers/execs-and-logs.mjs'), dir],
      env: { ...process.env, NATS_URL: world.nats.url, ...env },
      ready: (line) => (line.includes('"ready":true') ? true : undefined),
    });
  const lines = (name: string): Line[] => {
    const file = join(dir, name);
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
    return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
  };
  const positions = (name: string) => lines(name).map(({ checkpoint }) => checkpoint.position);
  const output = async (session: string, chunks: number) => {
    const sum = createHash('sha256');
    for (let chunk = 0, offset = 0; chunk < chunks; chunk++) {
      const bytes = random.bytes(1 + random.integer(4000));
      const place = {
        execId: 'e000000000001',
        stream: 'stdout',
        offset,
        sessionOffset: offset,
        at: 1,
      };
      await world.store.append(logStream(session), 'any', [anEvent('LogChunk', bytes, place)]);
      sum.update(bytes);
      offset += bytes.length;
    }
    return sum.digest('hex');
  };
  const expectEverythingOnce = async () => {
    const execs = (await everything(world.store)).filter(({ type }) => type.startsWith('Exec'));
    const chunks = await everything(world.store, ['log-']);
    await until(
      () =>
        lines('execs.jsonl').length >= execs.length &&
        lines('output.jsonl').length >= chunks.length,
      { timeoutMs: 20_000, everyMs: 100 },
    );
    expect(positions('execs.jsonl')).toEqual(execs.map(({ position }) => String(position)));
    expect(lines('execs.jsonl').map(({ record }) => record.id)).toEqual(execs.map(({ id }) => id));
    expect(positions('output.jsonl')).toEqual(chunks.map(({ position }) => String(position)));
  };

  const begin = async () => {
    world = await startWorld();
    await startRelayProcess(world, { VMUX_RELAY_OUTPUT: 'on' });
  };
  beforeEach(() => {
    dir = temporaryDirectory('consumer');
  });
  afterEach(async () => {
    await world.close();
    await releaseAll();
  });

  it('is killed again and again, and has everything once and in order', async () => {
    await begin();
    const writing = Promise.all([history(world.store, sessions, 1200), output('web-0a1b', 300)]);
    for (let round = 0; round < 4; round++) {
      const killed = await consumer();
      const before = lines('execs.jsonl').length;
      await until(() => lines('execs.jsonl').length > before);
      await sleep(random.integer(50));
      await killed.kill('SIGKILL');
    }
    const [, digest] = await writing;
    await consumer();
    await expectEverythingOnce();
    const bytes = lines('output.jsonl').map(({ record }) => Buffer.from(record.b64, 'base64'));
    expect(createHash('sha256').update(Buffer.concat(bytes)).digest('hex')).toBe(digest);
  }, 60_000);

  it('has everything once and in order when nats-server was killed or lost everything', async () => {
    await begin();
    await consumer();
    await Promise.all([history(world.store, sessions, 300), output('web-0a1b', 50)]);
    await until(() => lines('execs.jsonl').length > 0);
    const writing = history(world.store, sessions, 300);
    await world.nats.restart();
    await writing;
    await expectEverythingOnce();
    await world.loseJetStream();
    await history(world.store, sessions, 300);
    await expectEverythingOnce();
  }, 60_000);
  it('needs no more than the rights of a consumer, and the relay those of its service', async () => {
    const guarded = await startGuardedWorld();
    world = guarded.world;
    const env = { VMUX_RELAY_OUTPUT: 'on', ...guarded.envOf('session-service') };
    const relay = await startRelayProcess(world, env);
    const reader = await consumer(guarded.envOf('consumer'));
    await history(world.store, sessions, 30);
    await world.store.append(sessionStream('web-0a1b'), 'any', [anEvent('SessionDeleted')]);
    await history(world.store, ['train-77ff'], 10);
    await output('train-77ff', 10);
    const kept = (await everything(world.store))
      .filter(({ type }) => type.startsWith('Exec'))
      .map(({ position }) => String(position))
      .at(-1);
    await until(() => positions('execs.jsonl').at(-1) === kept);
    await until(() => lines('output.jsonl').length === 10);
    expect(`${relay.output()}${reader.output()}`).not.toMatch(/PERMISSIONS/i);
  }, 60_000);
});
