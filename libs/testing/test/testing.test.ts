import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  freePort,
  projectRoot,
  releaseAll,
  seededRandom,
  skipUnless,
  startNats,
  startProcess,
  startRedis,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { Redis } from 'ioredis';
import { connect } from 'nats';

afterAll(releaseAll);

const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};
const node = (script: string) => ({ command: process.execPath, args: ['-e', script] });

describe('a process started by a test', () => {
  it('is ready when it says so, and tells how it ended', async () => {
    const child = await startProcess({
      ...node('console.log("port 17"); setInterval(() => {}, 1000)'),
      ready: (line) => /^port (\d+)/.exec(line)?.[1],
    });
    expect(child.ready).toBe('17');
    expect(alive(child.pid)).toBe(true);
    expect(await child.kill('SIGKILL')).toEqual({ code: null, signal: 'SIGKILL' });
    expect(await child.stop()).toEqual({ code: null, signal: 'SIGKILL' });
    expect(alive(child.pid)).toBe(false);
  });

  it('fails with what it wrote when it ends before it is ready', async () => {
    const starting = startProcess({
      ...node('console.error("no such disk"); process.exit(3)'),
      ready: () => undefined,
    });
    await expect(starting).rejects.toThrow(/ended \(3\) before it was ready:\nno such disk/);
  });

  it('is ended when it is not ready in time', async () => {
    const starting = startProcess({
      ...node('console.log(process.pid); setInterval(() => {}, 1000)'),
      ready: () => undefined,
      readyTimeoutMs: 500,
    });
    const fault: Error = await starting.then(
      () => Promise.reject(new Error('it became ready')),
      (reason) => reason,
    );
    expect(fault.message).toMatch(/not ready in 500 ms/);
    expect(alive(Number(fault.message.trim().split('\n').at(-1)))).toBe(false);
  });

  it('says so when the program does not exist', async () => {
    const starting = startProcess({ command: '/no/such/program', ready: () => undefined });
    await expect(starting).rejects.toThrow(/cannot be started/);
  });

  it('takes along what it started', async () => {
    const child = await startProcess({
      command: '/bin/sh',
      args: ['-c', 'sleep 1000 & echo "$!"; wait'],
      ready: (line) => Number(line),
    });
    expect(alive(child.ready)).toBe(true);
    await child.kill();
    await until(() => !alive(child.ready));
  });

  it('dies, and its directory goes, when the test process is killed', async () => {
    const library = join(projectRoot(), 'dist/libs/testing/src/index.js');
    const script = `
      const { startProcess, temporaryDirectory } = require(${JSON.stringify(library)});
      const dir = temporaryDirectory();
      startProcess({ command: 'sleep', args: ['1000'], ready: () => undefined }).catch(() => {});
      const { execFileSync } = require('node:child_process');
      setTimeout(() => {
        const pid = execFileSync('pgrep', ['-P', String(process.pid), 'sleep'], { encoding: 'utf8' });
        console.log(JSON.stringify({ dir, pid: Number(pid) }));
      }, 200);`;
    const tester = spawn(process.execPath, ['-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = await once(tester.stdout, 'data');
    const { dir, pid } = JSON.parse(String(line));
    expect(alive(pid)).toBe(true);
    expect(existsSync(dir)).toBe(true);
    tester.kill('SIGKILL');
    await until(() => !alive(pid) && !existsSync(dir));
  });
});

it('removes a temporary directory with all that is in it', async () => {
  const dir = temporaryDirectory();
  mkdirSync(join(dir, 'deep'));
  writeFileSync(join(dir, 'deep', 'file'), 'x');
  await releaseAll();
  expect(existsSync(dir)).toBe(false);
});

skipUnless(process.getuid?.() === 0, 'mounting needs root')(
  'unmounts what is left mounted in a temporary directory',
  async () => {
    const dir = temporaryDirectory();
    mkdirSync(join(dir, 'mounted'));
    expect(spawnSync('mount', ['-t', 'tmpfs', 'none', join(dir, 'mounted')]).status).toBe(0);
    await releaseAll();
    expect(existsSync(dir)).toBe(false);
    expect(readFileSync('/proc/self/mounts', 'utf8')).not.toContain(dir);
  },
);

it('gives different free ports', async () => {
  expect(await freePort()).not.toBe(await freePort());
});

describe('until', () => {
  it('returns what the condition returned', async () => {
    let asked = 0;
    expect(await until(() => (++asked === 3 ? 'so' : undefined))).toBe('so');
  });

  it('fails with the last value seen', async () => {
    await expect(until(() => 0, { timeoutMs: 30 })).rejects.toThrow('last seen: 0');
    const throwing = () => Promise.reject(new Error('not yet'));
    await expect(until(throwing, { timeoutMs: 30 })).rejects.toThrow('not yet');
  });
});

describe('seeded random', () => {
  it('repeats itself for the same seed and differs for another', () => {
    const once = seededRandom(7);
    const again = seededRandom(7);
    const [first, uuid] = [once.bytes(1001), once.uuid()];
    expect(first).toHaveLength(1001);
    expect(again.bytes(1001).equals(first)).toBe(true);
    expect(again.uuid()).toBe(uuid);
    expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(seededRandom(8).bytes(1001).equals(first)).toBe(false);
  });
});

describe('servers', () => {
  it('nats keeps JetStream messages and its port over a restart', async () => {
    const nats = await startNats({ jetstream: true });
    const before = await connect({ servers: nats.url, reconnect: false });
    const manager = await before.jetstreamManager();
    await manager.streams.add({ name: 'kept', subjects: ['kept.>'] });
    await before.jetstream().publish('kept.one', 'hello');
    await before.close();
    await nats.stop();
    await nats.restart();
    const after = await connect({ servers: nats.url });
    const stream = await (await after.jetstreamManager()).streams.info('kept');
    expect(stream.state.messages).toBe(1);
    await after.close();
  });

  it('nats binds users to their subjects', async () => {
    const nats = await startNats({
      users: [{ user: 'a', password: 'secret', permissions: { publish: ['mine'], subscribe: [] } }],
    });
    await expect(connect({ servers: nats.url, reconnect: false })).rejects.toThrow(/Authorization/);
    const connection = await connect({ servers: nats.url, user: 'a', pass: 'secret' });
    const refused = (async () => {
      for await (const status of connection.status()) {
        if (status.type === 'error') return status.permissionContext;
      }
      return undefined;
    })();
    connection.publish('theirs');
    await connection.flush();
    expect(await refused).toEqual({ operation: 'publish', subject: 'theirs' });
    await connection.close();
  });

  it('redis starts, wants its password, and is empty after a restart', async () => {
    const redis = await startRedis({ password: 'secret' });
    const client = new Redis(redis.url);
    await client.set('key', 'value');
    await redis.restart();
    await until(async () => (await client.get('key')) === null);
    client.disconnect();
    const stranger = new Redis({ port: redis.port, host: redis.host });
    stranger.on('error', () => undefined);
    await expect(stranger.get('key')).rejects.toThrow(/NOAUTH/);
    stranger.disconnect();
  });
});
