import { randomBytes } from 'node:crypto';
import {
  EVENT_RELAY_STREAM,
  eventSubject,
  logStream,
  OUTPUT_RELAY_STREAM,
  outputSubject,
  sessionStream,
} from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import { headers } from 'nats';
import { eventCopy } from '../src/relay/copy';
import { CopyStream, Overtaken } from '../src/relay/copy-stream';
import { type Relay, relaySettingsFrom, startRelay } from '../src/relay/start-relay';
import {
  anEvent,
  copied,
  everything,
  history,
  positionsOf,
  startWorld,
  type World,
} from './relay-harness';

const silent = { debug: () => undefined, warn: () => undefined };
const sessions = ['web-0a1b', 'train-77ff', 'a-0000'];

describe('the relay', () => {
  let world: World;
  let relays: Relay[];
  const relay = (env: NodeJS.ProcessEnv = {}) => {
    const { store, connection } = world;
    const settings = relaySettingsFrom(env);
    const started = startRelay({ store, connection, settings, log: silent });
    relays.push(started);
    return started;
  };
  const untilCopied = async (stream = EVENT_RELAY_STREAM, prefixes = ['session-']) => {
    const last = (await everything(world.store, prefixes)).at(-1);
    await until(async () => {
      const query = { last_by_subj: '>' };
      const message = await world.manager.streams.getMessage(stream, query);
      return message.header.get('Vmux-Position') === String(last?.position);
    });
  };

  const streamNames = async () => {
    const names: string[] = [];
    for await (const stream of world.manager.streams.list()) names.push(stream.config.name);
    return names;
  };

  beforeEach(async () => {
    relays = [];
    world = await startWorld('max_payload: 131072');
  });
  afterEach(async () => {
    await Promise.all(relays.map((each) => each.stop()));
    await world.close();
    await releaseAll();
  });

  it('copies every event of every session in order, each with its position', async () => {
    await history(world.store, sessions, 300);
    await world.store.append('other-stream', 'any', [anEvent('Ignored')]);
    relay();
    await history(world.store, sessions, 50);
    await untilCopied();
    const truth = await everything(world.store);
    const copy = await copied(world.manager);
    expect(copy.map(({ position }) => position)).toEqual(positionsOf(truth));
    expect(copy.map(({ data }) => JSON.parse(data.toString()))).toEqual(
      truth.map((event) => ({
        position: String(event.position),
        sessionId: event.stream.slice('session-'.length),
        revision: event.revision,
        id: event.id,
        type: event.type,
        recordedAt: event.recordedAt.getTime(),
        metadata: event.metadata,
        data: event.data,
      })),
    );
    expect(copy.map(({ subject }) => subject)).toEqual(
      truth.map(({ stream, type }) => eventSubject(stream.slice('session-'.length), type)),
    );
  });

  it('keeps sealed values, token hashes and request keys to itself', async () => {
    relay();
    const env = { names: ['TOKEN'], keyId: 'k1', sealed: 'c2VhbGVk' };
    const spec = { env, labels: { sealed: 'kept' } };
    const metadata = { principal: 'key:1', key: 'kkk', digest: 'ddd', version: 1 };
    await world.store.append(sessionStream('web-0a1b'), 'none', [
      anEvent('SessionCreated', { spec }, metadata),
      anEvent('ShareGranted', { shareId: 's1', tokenHash: 'aaa' }, metadata),
    ]);
    await untilCopied();
    const copy = (await copied(world.manager)).map(({ data }) => JSON.parse(data.toString()));
    expect(copy.map(({ data }) => data)).toEqual([
      { spec: { env: { names: ['TOKEN'] }, labels: { sealed: 'kept' } } },
      { shareId: 's1' },
    ]);
    expect(copy.map((event) => event.metadata)).toEqual([
      { principal: 'key:1', version: 1 },
      { principal: 'key:1', version: 1 },
    ]);
  });

  it('goes on where the copy ends', async () => {
    await history(world.store, sessions, 40);
    const first = relay();
    await untilCopied();
    await first.stop();
    await history(world.store, sessions, 40);
    relay();
    await untilCopied();
    const copy = await copied(world.manager);
    expect(copy.map(({ position }) => position)).toEqual(
      positionsOf(await everything(world.store)),
    );
    expect(copy.map(({ sequence }) => sequence)).toEqual(copy.map((_, index) => index + 1));
  });

  it('puts neither a gap nor a repeat into the copy when two are at work', async () => {
    relay();
    relay();
    await Promise.all(sessions.map((session) => history(world.store, [session], 250)));
    await untilCopied();
    const copy = await copied(world.manager);
    expect(copy.map(({ position }) => position)).toEqual(
      positionsOf(await everything(world.store)),
    );
  });

  it('looks past messages of strangers and loses none of its own between them', async () => {
    relay();
    const client = world.connection.jetstream();
    const stray = async () => {
      for (let sent = 0; sent < 30; sent++) await client.publish('vmux.events.stray.Message', 'x');
    };
    await until(() => world.manager.streams.info(EVENT_RELAY_STREAM));
    await Promise.all([history(world.store, sessions, 400), stray()]);
    const last = (await everything(world.store)).at(-1);
    await until(async () =>
      (await copied(world.manager)).some(({ position }) => position === String(last?.position)),
    );
    const ours = (await copied(world.manager)).filter(({ position }) => position !== null);
    expect(ours.map(({ position }) => position)).toEqual(
      positionsOf(await everything(world.store)),
    );
  });

  it('sends nothing on after a message whose place a stranger has taken', async () => {
    const settings = { maxBytes: null, replicas: 1, timeoutMs: 5_000 };
    const stream = await CopyStream.open(world.connection, eventCopy, settings);
    const message = (name: string) => ({
      ...{ subject: eventSubject('web-0a1b', 'ExecIssued'), headers: { 'Vmux-Position': name } },
      ...{ data: Buffer.from('{}'), stub: Buffer.from('{}'), forgets: null },
    });
    expect(await stream.publish(message('1'), 0)).toBe(1);
    await world.connection.jetstream().publish('vmux.events.stray.Message', 'x');
    await expect(stream.publish(message('2'), 1)).rejects.toThrow(Overtaken);
    await expect(stream.publish(message('3'), 2)).rejects.toThrow(Overtaken);
    const again = await CopyStream.open(world.connection, eventCopy, settings);
    expect(await again.tail()).toEqual({ sequence: 2, position: 1n });
    expect(await again.publish(message('2'), 2)).toBe(3);
  });

  it('names the stream’s life in every message, another one after the stream was lost', async () => {
    relay();
    await history(world.store, sessions, 20);
    await untilCopied();
    const before = await copied(world.manager);
    await world.manager.streams.delete(EVENT_RELAY_STREAM);
    await history(world.store, sessions, 20);
    await untilCopied();
    const after = await copied(world.manager);
    expect(after.map(({ position }) => position)).toEqual(
      positionsOf(await everything(world.store)),
    );
    const lives = (copy: typeof after) => [
      ...new Set(copy.map((message) => message.headers.get('Vmux-Copy'))),
    ];
    expect(lives(before)).toHaveLength(1);
    expect(lives(after)).toHaveLength(1);
    expect(lives(after)).not.toEqual(lives(before));
  });

  it('fills JetStream again from zero when it has lost everything', async () => {
    relay({ VMUX_RELAY_OUTPUT: 'on' });
    await world.store.append(logStream('web-0a1b'), 'none', [
      anEvent('LogChunk', Buffer.from('a')),
    ]);
    await history(world.store, sessions, 100);
    await untilCopied();
    await world.loseJetStream();
    await history(world.store, sessions, 100);
    await untilCopied();
    expect((await copied(world.manager)).map(({ position }) => position)).toEqual(
      positionsOf(await everything(world.store)),
    );
    await until(async () => (await copied(world.manager, OUTPUT_RELAY_STREAM)).length === 1);
  });

  it('sends an event without its data when it is larger than the server takes', async () => {
    relay();
    const large = anEvent('ExecIssued', { line: 'x'.repeat(140_000) });
    await world.store.append(sessionStream('web-0a1b'), 'any', [large, anEvent('ExecStarted')]);
    await untilCopied();
    const [stub, next] = await copied(world.manager);
    expect(JSON.parse(String(stub?.data))).toMatchObject({
      id: large.id,
      data: null,
      omitted: true,
    });
    expect(Number(stub?.headers.get('Vmux-Omitted'))).toBeGreaterThan(140_000);
    expect(JSON.parse(String(next?.data))).toMatchObject({ type: 'ExecStarted', data: {} });
  });

  it('leaves output alone unless it is told to copy it', async () => {
    relay();
    await history(world.store, sessions, 3);
    await untilCopied();
    expect(await streamNames()).toEqual([EVENT_RELAY_STREAM]);
  });

  it('removes its copy of output when it is told not to make one any more', async () => {
    const first = relay({ VMUX_RELAY_OUTPUT: 'on' });
    await world.store.append(logStream('web-0a1b'), 'none', [
      anEvent('LogChunk', Buffer.from('key')),
    ]);
    await untilCopied(OUTPUT_RELAY_STREAM, ['log-']);
    await first.stop();
    relay({ VMUX_RELAY_OUTPUT: 'off' });
    await until(async () => (await streamNames()).join() === EVENT_RELAY_STREAM);
  });

  it('copies output byte for byte with its place', async () => {
    relay({ VMUX_RELAY_OUTPUT: 'on' });
    const bytes = randomBytes(65_536);
    const place = { execId: 'e000000000001', stream: 'stdout', offset: 7, sessionOffset: 9, at: 5 };
    const mark = { sessionOffset: 9 + bytes.length };
    await world.store.append(logStream('web-0a1b'), 'none', [
      anEvent('LogChunk', bytes, place),
      anEvent('LogMark', mark),
    ]);
    await untilCopied(OUTPUT_RELAY_STREAM, ['log-']);
    const [chunk, marked] = await copied(world.manager, OUTPUT_RELAY_STREAM);
    expect(chunk?.data.equals(bytes)).toBe(true);
    expect(chunk?.subject).toBe(outputSubject('web-0a1b'));
    expect(Object.fromEntries(chunk?.headers ?? [])).toMatchObject({
      'Vmux-Type': 'LogChunk',
      'Vmux-Exec': 'e000000000001',
      'Vmux-Stream': 'stdout',
      'Vmux-Offset': '7',
      'Vmux-Session-Offset': '9',
      'Vmux-At': '5',
      'Vmux-Revision': '0',
    });
    expect(JSON.parse(String(marked?.data))).toEqual(mark);
  });

  describe('of a deleted session', () => {
    const gone = 'secret-beef';
    const written = async () => {
      await world.store.append(logStream(gone), 'none', [anEvent('LogChunk', Buffer.from('key'))]);
      await history(world.store, [gone, 'web-0a1b'], 60);
      await world.store.append(sessionStream(gone), 'any', [anEvent('SessionDeleted')]);
    };
    const subjects = async (stream: string) =>
      (await copied(world.manager, stream)).map(({ subject }) => subject);
    const ofGone = async (stream: string) =>
      (await subjects(stream)).filter((subject) => subject.split('.')[2] === gone);

    it('keeps only that it was deleted, and knows where to go on', async () => {
      const first = relay({ VMUX_RELAY_OUTPUT: 'on' });
      await written();
      const left = async () => [
        ...(await ofGone(EVENT_RELAY_STREAM)),
        ...(await subjects(OUTPUT_RELAY_STREAM)),
      ];
      const markers = [
        eventSubject(gone, 'SessionDeleted'),
        `${outputSubject(gone)}.SessionDeleted`,
      ];
      await until(async () => (await left()).join() === markers.join());
      await first.stop();
      await world.nats.restart();
      await history(world.store, ['web-0a1b'], 30);
      relay({ VMUX_RELAY_OUTPUT: 'on' });
      await untilCopied();
      const deletion = eventSubject(gone, 'SessionDeleted');
      const expected = (await everything(world.store)).filter(
        ({ stream, type }) => stream !== sessionStream(gone) || type === 'SessionDeleted',
      );
      const copy = await copied(world.manager);
      expect(copy.map(({ position }) => position)).toEqual(positionsOf(expected));
      expect(copy.filter(({ subject }) => subject === deletion)).toHaveLength(1);
    });

    it('forgets the rest at the next start when a crash came in between', async () => {
      const first = relay();
      await history(world.store, [gone, 'web-0a1b'], 60);
      await untilCopied();
      await first.stop();
      const { position } = await world.store.append(sessionStream(gone), 'any', [
        anEvent('SessionDeleted'),
      ]);
      const published = headers();
      published.set('Vmux-Position', String(position));
      await world.connection
        .jetstream()
        .publish(eventSubject(gone, 'SessionDeleted'), '{}', { headers: published });
      expect((await ofGone(EVENT_RELAY_STREAM)).length).toBeGreaterThan(1);
      relay();
      await until(async () => (await ofGone(EVENT_RELAY_STREAM)).length === 1);
      expect((await subjects(EVENT_RELAY_STREAM)).length).toBeGreaterThan(1);
    });
  });

  it('says where it stands', async () => {
    const started = relay();
    await history(world.store, sessions, 10);
    await untilCopied();
    const last = (await everything(world.store)).at(-1);
    await until(() => started.status[0]?.published === 10);
    expect(started.status).toEqual([
      { stream: EVENT_RELAY_STREAM, position: last?.position, published: 10, waiting: null },
    ]);
    await started.stop();
    expect(started.status[0]?.waiting).toBe('stopped');
  });
});

describe('the relay’s settings', () => {
  it.each([
    { VMUX_RELAY_OUTPUT: 'yes' },
    { VMUX_RELAY_REPLICAS: '0' },
    { VMUX_RELAY_EVENTS_MIB: 'x' },
  ])('are refused with the name of what to set: %j', (env) =>
    expect(() => relaySettingsFrom(env)).toThrow(Object.keys(env)[0]),
  );
});
