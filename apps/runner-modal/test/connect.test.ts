import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { ModalApi } from '../src/drivers/modal-api';
import { ModalDriver } from '../src/drivers/modal-driver';
import { nameOf } from '../src/drivers/modal-tags';
import { type ModalEmulator, startModalEmulator } from './emulator';

jest.setTimeout(120_000);

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** Answers everything with what it was asked, on every address. */
const MIRROR = `
import http.server, json
class Mirror(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = json.dumps({'path': self.path, 'authorization': self.headers.get('authorization')}).encode()
        self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('', 8000), Mirror).serve_forever()`;
const ECHO = `
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while (data := self.request.recv(65536)): self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(('127.0.0.1', 9000), Echo).serve_forever()`;

describeUnless(
  process.platform === 'linux' && process.getuid?.() === 0,
  'the emulator’s workers are namespaces, which need Linux and root',
)('a direct pipe on Modal (emulated)', () => {
  let emulator: ModalEmulator;
  let driver: ModalDriver;
  const made: SandboxId[] = [];
  const open: SupervisorClient[] = [];

  beforeAll(async () => {
    emulator = await startModalEmulator();
    const { tokenId, tokenSecret, url: serverUrl } = emulator;
    driver = new ModalDriver({
      ...{ runnerId: 'test', tokenId, tokenSecret, serverUrl, appName: 'vmux-test' },
      supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
      snapshotsDirectory: temporaryDirectory('snapshots'),
      defaultImage: 'python:3.12-slim-bookworm',
    });
  });
  afterEach(async () => {
    await emulator.faults({ connectTokenSeconds: 3600, refuseConnects: 0 });
    for (const client of open.splice(0)) client.close();
    await Promise.all(made.splice(0).map((id) => driver.destroy(id)));
  });
  afterAll(async () => {
    await driver?.close();
    await emulator?.stop();
    await releaseAll();
  });

  const sandbox = async (gpu: string | null = null): Promise<SandboxId> => {
    const id = { sessionId: 'web-0a1b', epoch: 1, instance: randomBytes(8).toString('hex') };
    made.push(id);
    const limits = { cpus: 1, memoryMiB: 256, diskMiB: 512, pids: 256 };
    await driver.create({ id, limits, image: null, egress: false, gpu });
    return id;
  };
  const clientOver = async (pipe: Promise<Duplex>, id: SandboxId) => {
    const client = await SupervisorClient.connect(await pipe, id);
    open.push(client);
    return client;
  };
  const direct = (id: SandboxId) => clientOver(driver.openDirectPipe(id), id);
  const usual = (id: SandboxId) => clientOver(driver.openPipe(id), id);
  const serving = async (client: SupervisorClient, program: string, port: number) => {
    const argv = ['python3', '-c', program];
    await client.start({ execId: `on-${port}`, argv, env: { PATH } });
    await until(async () => (await client.dial(port)).destroy());
  };
  /** What comes back of what is sent, as its digest. */
  const echoed = async (client: SupervisorClient, data: Buffer): Promise<string> => {
    const stream = await client.dial(9000);
    const back = createHash('sha256');
    stream.end(data);
    for await (const piece of stream) back.update(piece);
    return back.digest('hex');
  };

  it.each([null, 'T4'])(
    'carries 20 MB exactly to a server on the loopback alone (gpu: %s)',
    async (gpu) => {
      const id = await sandbox(gpu);
      await serving(await usual(id), ECHO, 9000);
      const { opened, bytesIn } = await emulator.connects();
      const data = randomBytes(20 * 1024 * 1024);
      expect(await echoed(await direct(id), data)).toBe(
        createHash('sha256').update(data).digest('hex'),
      );
      const after = await emulator.connects();
      expect(after.opened).toBe(opened + 1);
      expect(after.bytesIn - bytesIn).toBeGreaterThan(data.length);
      expect(after.bytesOut).toBeGreaterThan(data.length);
    },
  );

  it('tells nobody of the port that it is carried to', async () => {
    const id = await sandbox();
    const client = await usual(id);
    const told: number[] = [];
    const looking = new AbortController();
    const watching = (async () => {
      for await (const item of client.ports({ signal: looking.signal }))
        if (item.kind === 'port') told.push(item.notice.port);
    })().catch(() => undefined);
    for (let times = 0; times < 3; times += 1) (await direct(id)).close();
    await serving(client, MIRROR, 8000);
    await until(() => told.includes(8000));
    looking.abort();
    await watching;
    expect(told).toEqual([8000]);
  });

  it('is opened with another token when the first is refused, and not at all when both are', async () => {
    const id = await sandbox();
    await emulator.faults({ refuseConnects: 1 });
    const { tokens, refused } = await emulator.connects();
    await direct(id);
    expect(await emulator.connects()).toMatchObject({ tokens: tokens + 2, refused: refused + 1 });
    await emulator.faults({ refuseConnects: 2 });
    const fault = await driver.openDirectPipe(id).then(
      () => null,
      (reason) => reason,
    );
    expect(fault).toMatchObject({ next: 'retry', message: expect.stringContaining('401') });
    expect(JSON.stringify({ ...fault, message: fault.message, stack: fault.stack })).not.toMatch(
      /Bearer|eyJ/,
    );
  });

  it('breaks with its token, and another is opened', async () => {
    const id = await sandbox();
    await serving(await usual(id), ECHO, 9000);
    await emulator.faults({ connectTokenSeconds: 2 });
    const first = await direct(id);
    expect(await first.ended).toMatchObject({ code: 'pipe_broken' });
    await emulator.faults({ connectTokenSeconds: 3600 });
    const data = randomBytes(1000);
    expect(await echoed(await direct(id), data)).toBe(
      createHash('sha256').update(data).digest('hex'),
    );
  });

  it('is lost with its sandbox', async () => {
    const id = await sandbox();
    const client = await direct(id);
    await emulator.end(nameOf(id), 'lost');
    expect(await client.ended).toMatchObject({ code: 'pipe_broken' });
    await expect(driver.openDirectPipe(id)).rejects.toMatchObject({ next: 'lost' });
  });

  it('goes where Modal documents connect tokens to go: header, query and cookie', async () => {
    const id = await sandbox();
    await serving(await usual(id), MIRROR, 8000);
    const { tokenId, tokenSecret, url: serverUrl } = emulator;
    const api = new ModalApi({ tokenId, tokenSecret, serverUrl, appName: 'vmux-test' });
    const sandboxId = (await api.find(nameOf(id))) ?? '';
    const { url, token } = await api.connectToken(sandboxId, 8000);
    api.close();
    const own = { authorization: 'Bearer of-the-app' };
    const ask = async (path: string, headers: Record<string, string>) => {
      const answer = await fetch(`${url}${path}`, { headers });
      expect(answer.headers.get('x-modal-emulated')).toBe('1');
      const json = answer.ok ? await answer.json() : null;
      return { status: answer.status, cookie: answer.headers.get('set-cookie'), json };
    };
    expect(await ask('/a?b=1', { authorization: `Bearer ${token}` })).toMatchObject({
      ...{ status: 200, cookie: null, json: { path: '/a?b=1' } },
    });
    const query = await ask(`/a?b=1&_modal_connect_token=${token}`, own);
    expect(query).toMatchObject({ status: 200, json: { path: '/a?b=1', ...own } });
    expect(query.cookie).toContain(`_modal_connect_token=${token}`);
    const cookie = await ask('/a', { ...own, cookie: `x=y; _modal_connect_token=${token}` });
    expect(cookie).toMatchObject({ status: 200, cookie: null, json: own });
    expect(await ask('/a', own)).toMatchObject({ status: 401 });
    expect(await ask('/a', { authorization: `Bearer ${token}x` })).toMatchObject({ status: 401 });
  });
});
