import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { binaryEvent, EventStoreDBClient } from '@eventstore/db-client';
import { releaseAll, skipUnless, startProcess, temporaryDirectory, until } from '@vmux/testing';
import { MAIN } from './server';

jest.setTimeout(120_000);
afterAll(releaseAll);

interface Ready {
  readonly port: number;
}

/** A server on a real file system whose syncs this test holds back and fails. */
class PlayedDisk {
  readonly data = temporaryDirectory('event-store');
  private readonly control = temporaryDirectory('played-disk');
  private readonly library = join(this.control, 'played-disk.so');

  constructor() {
    const source = join(__dirname, 'fixtures/played-disk.c');
    const built = spawnSync('cc', ['-shared', '-fPIC', '-o', this.library, source, '-ldl']);
    if (built.status !== 0) throw new Error(String(built.stderr));
  }

  play(what: 'hold' | 'fail'): void {
    writeFileSync(join(this.control, what), '');
  }

  behave(): void {
    for (const what of ['hold', 'fail']) rmSync(join(this.control, what), { force: true });
  }

  start() {
    return startProcess<Ready>({
      command: process.execPath,
      args: [MAIN, '--data', this.data, '--port', '0', '--insecure'],
      env: { ...process.env, LD_PRELOAD: this.library, PLAYED_DISK: this.control },
      ready: (line) => (line.startsWith('{"ready"') ? JSON.parse(line) : undefined),
    });
  }
}

const clientOf = ({ ready }: { readonly ready: Ready }) =>
  EventStoreDBClient.connectionString(
    `esdb://127.0.0.1:${ready.port}?tls=false&defaultDeadline=60000`,
  );

const event = () => binaryEvent({ type: 'happened', data: Buffer.alloc(100, 1) });

async function revisionsOf(client: EventStoreDBClient, stream: string): Promise<number[]> {
  const found: number[] = [];
  for await (const { event } of client.readStream(stream)) found.push(Number(event?.revision));
  return found;
}

const linux = skipUnless(
  process.platform === 'linux',
  'a played disk needs LD_PRELOAD, which is Linux',
);

describe('a disk', () => {
  linux('that is slow to sync holds back the answer and the reader', async () => {
    const disk = new PlayedDisk();
    const server = await disk.start();
    const client = clientOf(server);
    await client.appendToStream('kept', event());
    disk.play('hold');
    let answered = false;
    const appending = client.appendToStream('kept', event()).then(() => {
      answered = true;
    });
    // Reads go on, and see what is durable: time enough for an append that does not wait to be seen.
    for (let read = 0; read < 20; read++) {
      expect(await revisionsOf(client, 'kept')).toEqual([0]);
    }
    expect(answered).toBe(false);
    disk.behave();
    await appending;
    expect(await revisionsOf(client, 'kept')).toEqual([0, 1]);
    await client.dispose();
    await server.stop();
  });

  linux('that fails to sync ends the server, which acknowledges nothing more', async () => {
    const disk = new PlayedDisk();
    const first = await disk.start();
    const client = clientOf(first);
    await client.appendToStream('kept', event());
    disk.play('fail');
    const refused = client.appendToStream('kept', event());
    await expect(refused).rejects.toThrow();
    expect(await first.exited).toEqual({ code: 1, signal: null });
    await until(() => first.output().includes('could not be made durable'));
    await client.dispose();

    disk.behave();
    const second = await disk.start();
    const after = clientOf(second);
    // What was acknowledged is there; the other append was refused and may be there or not.
    const found = await revisionsOf(after, 'kept');
    expect([[0], [0, 1]]).toContainEqual(found);
    await after.appendToStream('kept', event());
    expect(await revisionsOf(after, 'kept')).toHaveLength(found.length + 1);
    await after.dispose();
    await second.stop();
  });
});
