import { setTimeout as sleep } from 'node:timers/promises';
import { EVENT_RELAY_STREAM } from '@vmux/events';
import { releaseAll, seededRandom, until } from '@vmux/testing';
import {
  copied,
  everything,
  history,
  positionsOf,
  startRelayProcess,
  startWorld,
  type World,
} from './relay-harness';

const sessions = ['web-0a1b', 'train-77ff', 'a-0000', 'b-1111'];
const random = seededRandom(11);

describe('across a fail-over the copy has no gap, no repeat and no other order', () => {
  let world: World;
  const expectExactCopy = async () => {
    const truth = positionsOf(await everything(world.store));
    await until(
      async () =>
        (await world.manager.streams.info(EVENT_RELAY_STREAM)).state.last_seq >= truth.length,
      { timeoutMs: 60_000 },
    );
    const copy = await copied(world.manager);
    expect(copy.map(({ position }) => position)).toEqual(truth);
  };

  beforeEach(async () => {
    world = await startWorld();
  });
  afterEach(async () => {
    await world.close();
    await releaseAll();
  });

  it('when a relay is killed in the middle of its window and another takes over', async () => {
    // Far more than a window, so that every kill hits one that is full.
    await Promise.all(sessions.map((session) => history(world.store, [session], 1500)));
    for (let round = 0; round < 5; round++) {
      const before = await lastSequence();
      const relay = await startRelayProcess(world);
      await until(async () => (await lastSequence()) > before, { everyMs: 2 });
      await sleep(random.integer(60));
      await relay.kill('SIGKILL');
    }
    await startRelayProcess(world);
    await expectExactCopy();
  }, 120_000);

  it('when two relays are at work and are killed in turn', async () => {
    let writing = true;
    const writer = (async () => {
      while (writing) await history(world.store, sessions, 50);
    })();
    const relays = [await startRelayProcess(world), await startRelayProcess(world)];
    for (let round = 0; round < 4; round++) {
      await sleep(300 + random.integer(200));
      await relays.shift()?.kill('SIGKILL');
      relays.push(await startRelayProcess(world));
    }
    writing = false;
    await writer;
    await expectExactCopy();
  }, 120_000);

  it('when nats-server is killed and comes back', async () => {
    await startRelayProcess(world);
    await startRelayProcess(world);
    for (let round = 0; round < 3; round++) {
      const writing = history(world.store, sessions, 400);
      await sleep(random.integer(150));
      await world.nats.kill('SIGKILL');
      await writing;
      await world.nats.restart();
    }
    await expectExactCopy();
  }, 120_000);

  it('when JetStream loses everything while two relays are at work', async () => {
    await startRelayProcess(world);
    await startRelayProcess(world);
    const writing = history(world.store, sessions, 1200);
    await until(async () => (await lastSequence()) > 100);
    await world.loseJetStream();
    await writing;
    await expectExactCopy();
  }, 120_000);

  it('when the event store is killed and comes back', async () => {
    await startRelayProcess(world);
    await history(world.store, sessions, 200);
    await world.eventStore.restart();
    await history(world.store, sessions, 200);
    await expectExactCopy();
  }, 120_000);

  async function lastSequence(): Promise<number> {
    const info = await world.manager.streams.info(EVENT_RELAY_STREAM).catch(() => null);
    return info?.state.last_seq ?? 0;
  }
});
