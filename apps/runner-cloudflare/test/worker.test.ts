import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type SandboxId, type SandboxSpec, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, releaseAll, releaseLater, until } from '@vmux/testing';
import WebSocket from 'ws';
import { sign } from '../../../workers/cloudflare/src/signature';
import { pathOf } from '../../../workers/cloudflare/src/wire';
import { CloudflareDriver } from '../src/drivers/cloudflare-driver';
import { isRoot, startTestEmulator, type TestEmulator } from './emulator';

const group = describeUnless(isRoot, 'the emulator’s containers are namespaces, which need root');
const limits = { cpus: 1, memoryMiB: 256, diskMiB: 256, pids: 128 };
const PATH = '/usr/local/bin:/usr/bin:/bin';
let count = 0;
const newId = (epoch = 1): SandboxId => ({
  sessionId: `cf-${++count}`,
  epoch,
  instance: `i${count}`,
});
const specOf = (id: SandboxId): SandboxSpec => ({
  id,
  limits,
  image: null,
  egress: false,
  gpu: null,
});

/** Of every container that there is, whoever knows of it. */
const containersIn = ({ dir }: TestEmulator): string[] => readdirSync(join(dir, 'data/ns/s'));

afterAll(releaseAll);

group('the Cloudflare Worker, emulated', () => {
  let emulator: TestEmulator;
  const driverOf = (runnerId = 'one', worker = { url: emulator.url, key: emulator.key }) =>
    new CloudflareDriver({ runnerId, worker });
  const newSandbox = async (driver: CloudflareDriver) => {
    const id = newId();
    await driver.create(specOf(id));
    return id;
  };
  const clientOf = async (driver: CloudflareDriver, id: SandboxId) => {
    const client = await SupervisorClient.connect(await driver.openPipe(id), id);
    releaseLater(() => client.close());
    return client;
  };
  const said = async (client: SupervisorClient, execId: string, script: string) => {
    await client.start({ execId, argv: ['sh', '-c', script], env: { PATH } });
    let text = '';
    for await (const item of client.read(execId)) if ('data' in item) text += item.data;
    return text;
  };

  beforeAll(async () => {
    emulator = await startTestEmulator({ VMUX_LEAKED_AFTER_MINUTES: '0' });
  }, 120_000);

  it('finds its sandboxes again after everything of it was killed', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    expect(await said(client, 'e1', 'echo kept > /tmp/file; echo done')).toBe('done\n');
    await emulator.restart();
    expect(await driver.probe(id)).toEqual({ state: 'running' });
    const again = await clientOf(driver, id);
    expect(await said(again, 'e2', 'cat /tmp/file')).toBe('kept\n');
  }, 90_000);

  it('leaves nothing of creates that it was killed in, once it answers again', async () => {
    const own = await startTestEmulator();
    const driver = driverOf('interrupted', own);
    const ids = Array.from({ length: 6 }, () => newId());
    const created = Promise.allSettled(ids.map((id) => driver.create(specOf(id))));
    await until(() => containersIn(own).length > 0);
    await own.restart();
    const outcomes = await created;
    expect(outcomes.map(({ status }) => status)).toContain('rejected');
    const made = ids.filter((_, at) => outcomes[at]?.status === 'fulfilled');
    const expected = made.map(({ instance }) => instance).sort();
    await until(
      async () => {
        await driver.capabilities();
        const left = (await driver.list()).map(({ id }) => id.instance).sort();
        if (left.join() === expected.join() && containersIn(own).length === made.length)
          return true;
        throw new Error(`${left} and ${containersIn(own)} are left, not ${expected}`);
      },
      { timeoutMs: 60_000, everyMs: 200 },
    );
    for (const id of made) await driver.destroy(id);
    expect(containersIn(own)).toEqual([]);
  }, 120_000);

  it('says 410 for a sandbox whose container was replaced by an empty one, and never uses that one', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    await said(client, 'e1', 'echo mine > /tmp/file');
    await emulator.control('replace', id);
    await expect(client.ended).resolves.toMatchObject({ code: 'pipe_broken' });
    const path = `${pathOf(id)}/pipe`;
    const headers = await sign(emulator.key, {
      method: 'GET',
      target: path,
      runner: 'one',
      body: new Uint8Array(),
    });
    const status = await new Promise((resolve) => {
      new WebSocket(`${emulator.url.replace('http', 'ws')}${path}`, { headers }).once(
        'unexpected-response',
        (_request, response) => resolve(response.statusCode),
      );
    });
    expect(status).toBe(410);
    await expect(driver.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
    expect(await driver.probe(id)).toEqual({
      state: 'gone',
      evidence: 'the container was replaced by an empty one',
    });
  });

  it('notices a replaced container by a probe alone', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    await emulator.control('replace', id);
    expect(await driver.probe(id)).toMatchObject({ state: 'gone' });
    await expect(driver.adopt(id)).rejects.toMatchObject({ next: 'lost' });
  });

  it('starts nothing when it is asked how a lost sandbox is', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    await emulator.control('kill', id);
    await until(async () => (await driver.probe(id)).state === 'gone');
    await expect(emulator.control('cut', id)).rejects.toThrow('has no container');
    await driver.list();
    await expect(driver.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
    await expect(emulator.control('cut', id)).rejects.toThrow('has no container');
  });

  it('fences the runner that a sandbox was taken from', async () => {
    const [one, two] = [driverOf('one'), driverOf('two')];
    const id = await newSandbox(one);
    const before = await clientOf(one, id);
    await expect(two.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
    expect(await two.list()).toEqual([]);
    await two.adopt(id);
    await expect(before.ended).resolves.toMatchObject({ code: 'pipe_broken' });
    await expect(one.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
    expect(await one.probe(id)).toMatchObject({ state: 'gone' });
    await expect(one.checkpoint(id)).rejects.toMatchObject({ next: 'lost' });
    await one.destroy(id);
    const after = await clientOf(two, id);
    expect(await said(after, 'e1', 'echo still here')).toBe('still here\n');
  });

  it('creates nothing for an epoch that its session has left behind', async () => {
    const driver = driverOf();
    const newer = newId(7);
    await driver.create(specOf(newer));
    const older = { ...newer, epoch: 6 };
    await expect(driver.create(specOf(older))).rejects.toMatchObject({ next: 'refuse' });
    await driver.destroy(newer);
    await expect(driver.create(specOf(older))).rejects.toMatchObject({ next: 'refuse' });
  });

  it('makes nothing of a create that comes after its destroy', async () => {
    const driver = driverOf();
    const id = newId();
    await driver.destroy(id);
    await expect(driver.create(specOf(id))).rejects.toMatchObject({ next: 'lost' });
    expect(await driver.list()).toEqual(
      expect.not.arrayContaining([expect.objectContaining({ id })]),
    );
  });

  it('carries 50 MB exactly over a connection that is cut every time some of it has come', async () => {
    const cutting = await cuttingProxy(emulator.url);
    const driver = driverOf('one', { url: cutting.url, key: emulator.key });
    const id = await newSandbox(driverOf());
    const bytes = 50 * 1024 * 1024;
    const hash = createHash('sha256');
    let offset = 0;
    let cuts = 0;
    const first = await SupervisorClient.connect(await driver.openPipe(id), id);
    const script = `head -c ${bytes} /dev/urandom | tee /tmp/blob`;
    await first.start({ execId: 'big', argv: ['sh', '-c', script], env: { PATH } });
    first.close();
    for (let ended = false; !ended; ) {
      try {
        const client = await SupervisorClient.connect(await driver.openPipe(id), id);
        let read = 0;
        for await (const item of client.read('big', { offset })) {
          if (item.kind === 'end') ended = true;
          if (!('data' in item)) continue;
          hash.update(item.data);
          offset += item.data.length;
          read += item.data.length;
          if (read > 4 * 1024 * 1024 && offset < bytes) cutting.cut();
        }
        client.close();
      } catch (fault) {
        expect(fault).toMatchObject({ next: 'retry' });
        cuts += 1;
      }
    }
    expect(offset).toBe(bytes);
    expect(cuts).toBeGreaterThan(5);
    const client = await clientOf(driverOf(), id);
    const inside = await said(client, 'sum', 'sha256sum < /tmp/blob');
    expect(inside.slice(0, 64)).toBe(hash.digest('hex'));
  }, 120_000);

  it('goes on with a run whose Durable Object was evicted', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    const script = 'for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; exit 7';
    await client.start({ execId: 'run', argv: ['sh', '-c', script], env: { PATH } });
    const former = await emulator.control('incarnation', id);
    await emulator.control('evict-object', id);
    expect(await emulator.control('incarnation', id)).not.toBe(former);
    await expect(client.ended).resolves.toMatchObject({ code: 'pipe_broken' });
    expect(await driver.probe(id)).toEqual({ state: 'running' });
    const again = await clientOf(driver, id);
    let text = '';
    for await (const item of again.read('run')) {
      if ('data' in item) text += item.data;
      if (item.kind === 'end') expect(item.exec.outcome).toEqual({ kind: 'exited', code: 7 });
    }
    expect(text).toBe('1\n2\n3\n4\n5\n');
    await emulator.control('kill', id);
    await until(async () => (await driver.probe(id)).state === 'gone');
  }, 60_000);

  it('saves the files to the bucket and begins another sandbox with exactly them', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    const script =
      'cd /workspace && mkdir -p a/b && head -c 20000000 /dev/urandom > a/b/big && ln -s a/b/big link && chmod 700 a && echo x > /root/.profile-of-mine';
    await said(client, 'e1', script);
    const look =
      'cd / && find workspace root -printf "%p %m %s %l\\n" | sort && sha256sum workspace/a/b/big';
    const before = await said(client, 'e2', look);
    const { ref, bytes } = await driver.checkpoint(id);
    expect(bytes).toBeGreaterThan(20_000_000);
    await said(client, 'e3', 'rm -rf /workspace/a; echo later > /workspace/later');
    const other = newId();
    await driver.restore(specOf(other), { ref, bytes });
    const restored = await clientOf(driver, other);
    expect(await said(restored, 'e1', look)).toBe(before);
  }, 60_000);

  it('refuses to begin with a checkpoint that is not there', async () => {
    const driver = driverOf();
    for (const ref of ['checkpoints/x/1/00000000-0000-0000-0000-000000000000', '../x', ''])
      await expect(driver.restore(specOf(newId()), { ref, bytes: 0 })).rejects.toMatchObject({
        next: 'refuse',
        reason: 'invalid',
      });
  });

  it('reaps what no runner has asked for, and leaves what is in use', async () => {
    const driver = driverOf('forgetful');
    const [used, leaked] = [await newSandbox(driver), await newSandbox(driver)];
    const client = await clientOf(driver, used);
    await emulator.control('reap');
    const left = (await driver.list()).map(({ id }) => id.instance);
    expect(left).toEqual([used.instance]);
    expect(await driver.probe(leaked)).toMatchObject({ state: 'gone' });
    expect(await said(client, 'e1', 'echo here')).toBe('here\n');
  });

  it('tells the runner that a container is about to be killed, and when', async () => {
    const driver = driverOf();
    const endings: { readonly id: SandboxId; readonly endsAtMs: number }[] = [];
    driver.onEnding((of, endsAtMs) => endings.push({ id: of, endsAtMs }));
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    const beforeMs = Date.now();
    await emulator.control('evict', id, 900_000);
    await until(() => endings.length > 0);
    expect(endings).toEqual([{ id, endsAtMs: expect.any(Number) }]);
    expect(endings[0]?.endsAtMs).toBeGreaterThanOrEqual(beforeMs + 900_000);
    expect(await said(client, 'e1', 'echo there is time')).toBe('there is time\n');
    await clientOf(driver, id);
    await until(() => endings.length === 2);
    expect(endings[1]).toEqual(endings[0]);
  });

  it('carries requests and WebSockets to a port of the sandbox, for whoever can sign', async () => {
    const driver = driverOf();
    const id = await newSandbox(driver);
    const client = await clientOf(driver, id);
    await client.files.write('/tmp/server.js', [Buffer.from(WEB_SERVER)]);
    await client.start({ execId: 'web', argv: ['node', '/tmp/server.js'], env: { PATH } });
    for await (const item of client.ports())
      if (item.kind === 'port' && item.notice.port === 8080) break;
    const path = `${pathOf(id)}/ports/8080/hello?x=1`;
    const headersOf = (method: string, target = path) =>
      sign(emulator.key, { method, target, runner: 'one', body: new Uint8Array() });
    const answer = await fetch(`${emulator.url}${path}`, {
      method: 'POST',
      headers: await headersOf('POST'),
      body: 'abc',
    });
    expect([answer.status, await answer.text()]).toEqual([201, 'POST /hello?x=1 abc none']);
    expect((await fetch(`${emulator.url}${path}`)).status).toBe(401);
    const privileged = `${pathOf(id)}/ports/80/`;
    const refused = await fetch(`${emulator.url}${privileged}`, {
      headers: await headersOf('GET', privileged),
    });
    expect(refused.status).toBe(422);
    const socket = new WebSocket(`${emulator.url.replace('http', 'ws')}${path}`, {
      headers: await headersOf('GET'),
    });
    const echoed = await new Promise<string>((resolve, reject) => {
      socket.once('error', reject);
      socket.once('open', () => socket.send('ping'));
      socket.once('message', (data) => resolve(String(data)));
    });
    socket.close();
    expect(echoed).toBe('ping');
  }, 60_000);

  it('refuses early what Cloudflare does not have', async () => {
    const driver = driverOf();
    const refusal = { next: 'refuse', reason: 'unsupported' };
    const spec = specOf(newId());
    const asked = [
      { ...spec, limits: { ...limits, cpus: 5 } },
      { ...spec, limits: { ...limits, memoryMiB: 12_289 } },
      { ...spec, limits: { ...limits, diskMiB: 20_000 } },
      { ...spec, gpu: 'H100' },
      { ...spec, image: 'debian' },
    ];
    for (const each of asked) await expect(driver.create(each)).rejects.toMatchObject(refusal);
    expect(await driver.probe(spec.id)).toMatchObject({ state: 'gone' });
  });
});

/** Answers requests with what came, and WebSockets with one frame that repeats the first. */
const WEB_SERVER = `
const { createHash } = require('node:crypto');
const server = require('node:http').createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const ours = Object.keys(request.headers).filter((name) => name.startsWith('x-vmux')).join() || 'none';
  response.writeHead(201).end([request.method, request.url, body, ours].join(' '));
});
server.on('upgrade', (request, socket) => {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nupgrade: websocket\\r\\nconnection: Upgrade\\r\\nsec-websocket-accept: ' + accept + '\\r\\n\\r\\n');
  socket.on('data', (frame) => {
    if ((frame[0] & 15) !== 1) return;
    const length = frame[1] & 127;
    const mask = frame.subarray(2, 6);
    const text = frame.subarray(6, 6 + length).map((byte, at) => byte ^ mask[at % 4]);
    socket.write(Buffer.concat([Buffer.from([129, length]), text]));
  });
  socket.on('error', () => undefined);
});
server.listen(8080, '127.0.0.1');
`;

/** A connection between a runner and the Worker that can be cut in the middle. */
async function cuttingProxy(to: string): Promise<{ readonly url: string; cut(): void }> {
  const { hostname, port } = new URL(to);
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    const onward = connect(Number(port), hostname);
    for (const end of [socket, onward]) {
      open.add(end);
      end.on('error', () => undefined);
      end.once('close', () => {
        open.delete(end);
        socket.destroy();
        onward.destroy();
      });
    }
    socket.pipe(onward).pipe(socket);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const cut = () => {
    for (const socket of open) socket.destroy();
  };
  releaseLater(() => {
    cut();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { url: `http://127.0.0.1:${address.port}`, cut };
}
