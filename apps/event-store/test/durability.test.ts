import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { binaryEvent, EventStoreDBClient, jsonEvent } from '@eventstore/db-client';
import { skipUnless } from '@vmux/testing';
import { Bench, run, Server } from './server';

// Bounds a test that waits for something that does not come, on a busy machine too.
jest.setTimeout(120_000);

const bench = new Bench();
afterAll(() => bench.clean());

const event = (bytes = 100) => binaryEvent({ type: 'happened', data: Buffer.alloc(bytes, 1) });

async function using<T>(
  server: Server,
  use: (client: EventStoreDBClient) => Promise<T>,
): Promise<T> {
  const client = EventStoreDBClient.connectionString(server.plainUrl);
  try {
    return await use(client);
  } finally {
    await client.dispose();
  }
}

const countIn = (server: Server, stream: string) =>
  using(server, async (client) => {
    let count = 0;
    for await (const { event: found } of client.readStream(stream)) {
      expect(Number(found?.revision)).toBe(count++);
    }
    return count;
  });

/** A store with ten acknowledged events whose process was killed. */
async function killedStore(): Promise<string> {
  const directory = bench.directory();
  const server = await bench.start(directory, '--insecure');
  await using(server, async (client) => {
    for (let count = 0; count < 10; count++) await client.appendToStream('kept', event());
  });
  await server.stop('SIGKILL');
  return directory;
}

const refusal = async (directory: string): Promise<string> => {
  const { code, stdout, stderr } = await run('--data', directory, '--insecure');
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  return stderr;
};

describe('a data directory', () => {
  it('is held by one process, which a second one names', async () => {
    const directory = bench.directory();
    const server = await bench.start(directory, '--insecure');
    expect(await refusal(directory)).toContain(`in use by process ${server.pid}`);
    await using(server, (client) => client.appendToStream('still', event()));
  });

  it('is free again as soon as its process was killed', async () => {
    const directory = bench.directory();
    const first = await bench.start(directory, '--insecure');
    await first.stop('SIGKILL');
    const second = await bench.start(directory, '--insecure');
    expect(second.pid).not.toBe(first.pid);
  });

  it.each(['SIGTERM', 'SIGKILL'] as const)(
    'keeps what was acknowledged over %s',
    async (signal) => {
      const directory = bench.directory();
      const first = await bench.start(directory, '--insecure');
      await using(first, async (client) => {
        await Promise.all(
          Array.from({ length: 200 }, () => client.appendToStream('kept', event(5000))),
        );
      });
      const { code } = await first.stop(signal);
      expect(code).toBe(signal === 'SIGTERM' ? 0 : null);
      expect(existsSync(join(directory, 'events.db-wal'))).toBe(signal === 'SIGKILL');
      const second = await bench.start(directory, '--insecure');
      expect(await countIn(second, 'kept')).toBe(200);
    },
  );

  it('remembers the ids of recent events over a kill, so that a repeated append stays one', async () => {
    const directory = bench.directory();
    const first = await bench.start(directory, '--insecure');
    const sent = [event(), event()];
    await using(first, (client) => client.appendToStream('once', sent));
    await first.stop('SIGKILL');
    const second = await bench.start(directory, '--insecure');
    await using(second, (client) => client.appendToStream('once', sent));
    expect(await countIn(second, 'once')).toBe(2);
  });

  it('goes on with positions and revisions where it was', async () => {
    const directory = bench.directory();
    const append = async (server: Server) =>
      using(server, async (client) => {
        const { nextExpectedRevision, position } = await client.appendToStream(
          's',
          jsonEvent({ type: 't', data: {} }),
        );
        return { revision: Number(nextExpectedRevision), position: Number(position?.commit) };
      });
    const first = await bench.start(directory, '--insecure');
    const before = await append(first);
    await first.stop();
    const after = await append(await bench.start(directory, '--insecure'));
    expect(after.revision).toBe(before.revision + 1);
    expect(after.position).toBeGreaterThan(before.position);
  });
});

describe('a damaged store', () => {
  it('recovers from a log whose unacknowledged end is torn', async () => {
    const directory = await killedStore();
    const log = join(directory, 'events.db-wal');
    writeFileSync(log, Buffer.concat([readFileSync(log), Buffer.alloc(3000, 0x5a)]));
    expect(await countIn(await bench.start(directory, '--insecure'), 'kept')).toBe(10);
  });

  it.each([
    ['deleted', (log: string) => rmSync(log)],
    ['cut short', (log: string) => truncateSync(log, 30_000)],
    [
      'damaged in the middle',
      (log: string) => {
        const bytes = readFileSync(log);
        bytes.fill(0xff, 40_000, 41_000);
        writeFileSync(log, bytes);
      },
    ],
  ])('is refused when its log was %s, says what to do, and is left as it is', async (_, damage) => {
    const directory = await killedStore();
    damage(join(directory, 'events.db-wal'));
    const before = existsSync(join(directory, 'events.db-wal'))
      ? readFileSync(join(directory, 'events.db-wal'))
      : undefined;
    const said = await refusal(directory);
    expect(said).toMatch(/last acknowledged event has position \d+ but the database ends at \d+/);
    expect(said).toContain('Restore events.db');
    if (before) expect(readFileSync(join(directory, 'events.db-wal')).equals(before)).toBe(true);
    await refusal(directory);
  });

  it('goes on with what is left when its owner accepts the loss', async () => {
    const directory = await killedStore();
    truncateSync(join(directory, 'events.db-wal'), 30_000);
    await refusal(directory);
    rmSync(join(directory, 'high-water-mark'));
    const server = await bench.start(directory, '--insecure');
    await using(server, (client) => client.appendToStream('kept', event()));
    expect(await countIn(server, 'kept')).toBeLessThan(10);
  });

  it('is refused when the database itself is gone, cut short or not one', async () => {
    const stopped = async () => {
      const directory = bench.directory();
      const server = await bench.start(directory, '--insecure');
      await using(server, async (client) => {
        for (let count = 0; count < 10; count++) await client.appendToStream('kept', event(20_000));
      });
      await server.stop();
      return { directory, file: join(directory, 'events.db') };
    };
    const gone = await stopped();
    rmSync(gone.file);
    expect(await refusal(gone.directory)).toContain('events.db is missing');
    const cut = await stopped();
    truncateSync(cut.file, Math.floor(statSync(cut.file).size / 2 / 4096) * 4096);
    expect(await refusal(cut.directory)).toContain('events.db is damaged');
    const foreign = await stopped();
    writeFileSync(foreign.file, 'not a database'.repeat(1000));
    expect(await refusal(foreign.directory)).toContain('events.db is damaged');
    const older = await stopped();
    const copy = `${older.file}.copy`;
    copyFileSync(older.file, copy);
    const server = await bench.start(older.directory, '--insecure');
    await using(server, (client) => client.appendToStream('kept', event()));
    await server.stop();
    copyFileSync(copy, older.file);
    expect(await refusal(older.directory)).toContain('last acknowledged event');
  });
});

describe('the write-ahead log', () => {
  it('stays bounded and everything stays readable while appends go on', async () => {
    const directory = bench.directory();
    const server = await bench.start(
      directory,
      '--insecure',
      '--wal-limit-mib',
      '2',
      '--http-port',
      '0',
    );
    await using(server, async (client) => {
      const write = async (writer: number) => {
        for (let count = 0; count < 150; count++) {
          await client.appendToStream(`w-${writer}`, event(30_000));
        }
      };
      await Promise.all([write(0), write(1), write(2), write(3)]);
    });
    expect(await server.metric('event_store_events_total')).toBe(600);
    // 600 × 30 kB are 18 MB.
    expect(statSync(join(directory, 'events.db-wal')).size).toBeLessThan(12 * 1024 * 1024);
    await server.stop('SIGKILL');
    const again = await bench.start(directory, '--insecure');
    for (const writer of [0, 1, 2, 3]) expect(await countIn(again, `w-${writer}`)).toBe(150);
  });
});

describe('scavenging', () => {
  it('gives back the room of truncated events and keeps the numbering', async () => {
    const directory = bench.directory();
    const server = await bench.start(directory, '--insecure', '--http-port', '0');
    await using(server, async (client) => {
      for (let round = 0; round < 10; round++) {
        await client.appendToStream(
          'long',
          Array.from({ length: 100 }, () => event(1000)),
        );
      }
      await client.setStreamMetadata('long', { truncateBefore: 990 });
      const removed = async () => server.metric('event_store_scavenged_events_total');
      while ((await removed()) < 990) await new Promise((resolve) => setTimeout(resolve, 10));
      const next = await client.appendToStream('long', event(), { expectedRevision: 999n });
      expect(next.nextExpectedRevision).toBe(1000n);
      const all = [];
      for await (const { event: found } of client.readAll()) {
        if (found?.streamId === 'long') all.push(Number(found.revision));
      }
      expect(all).toEqual(Array.from({ length: 11 }, (_, at) => 990 + at));
    });
  });
});

const isRoot = process.getuid?.() === 0;
const onSmallDisk = skipUnless(isRoot, 'mounting a small disk needs root');

describe('a full disk', () => {
  onSmallDisk(
    `refuses appends, corrupts nothing and resumes when there is room${isRoot ? '' : ' (skipped: only root can mount a small disk)'}`,
    async () => {
      const mount = bench.directory();
      const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', mount], {
        encoding: 'utf8',
      });
      expect(mounted.stderr).toBe('');
      const ballast = join(mount, 'ballast');
      let server: Server | undefined;
      try {
        writeFileSync(ballast, Buffer.alloc(4 * 1024 * 1024));
        server = await Server.start(join(mount, 'data'), '--insecure', '--wal-limit-mib', '2');
        const stored = await using(server, async (client) => {
          let count = 0;
          let refused = '';
          for (; count < 400 && refused === ''; count++) {
            await client.appendToStream('full', event(100_000)).catch((error: Error) => {
              refused = error.message;
            });
          }
          expect(refused).toContain('no space left');
          await expect(client.appendToStream('full', event(100_000))).rejects.toThrow(
            'no space left',
          );
          return count - 1;
        });
        expect(stored).toBeGreaterThan(10);
        expect(await countIn(server, 'full')).toBe(stored);
        await server.stop('SIGKILL');
        server = await Server.start(join(mount, 'data'), '--insecure', '--wal-limit-mib', '2');
        expect(await countIn(server, 'full')).toBe(stored);
        rmSync(ballast);
        await using(server, (client) => client.appendToStream('full', event(100_000)));
        expect(await countIn(server, 'full')).toBe(stored + 1);
        await server.stop('SIGKILL');
        server = await Server.start(join(mount, 'data'), '--insecure');
        expect(await countIn(server, 'full')).toBe(stored + 1);
      } finally {
        await server?.stop('SIGKILL');
        expect(spawnSync('umount', [mount], { encoding: 'utf8' }).stderr).toBe('');
      }
    },
  );
});
