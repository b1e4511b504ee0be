import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { basename, join } from 'node:path';
import { type SandboxId, SupervisorClient } from '@vmux/runner-kit';
import { freePort, projectRoot, releaseAll, releaseLater, until } from '@vmux/testing';
import { configFrom } from '../src/config';
import { NO_ISOLATION, ProcessDriver } from '../src/drivers/process-driver';

const supervisorPath = join(projectRoot(), 'dist/native/vmux-supervisor');
const limits = { cpus: 1, memoryMiB: 64, diskMiB: 64, pids: 32 };
const id: SandboxId = { sessionId: 'plain-0a1b', epoch: 1, instance: 'i-1' };
const spec = { id, limits, image: null, egress: false, gpu: null };

function opened() {
  const dataDir = mkdtempSync('/tmp/vmux-plain-');
  const warnings: string[] = [];
  const warn = (message: string) => void warnings.push(message);
  const open = () => new ProcessDriver({ dataDir, supervisorPath, warn });
  const driver = open();
  releaseLater(async () => {
    await driver.destroy(id);
    rmSync(dataDir, { recursive: true, force: true });
  });
  return { dataDir, warnings, driver, open };
}

const connected = async (driver: ProcessDriver) => {
  const client = await SupervisorClient.connect(await driver.openPipe(id), id);
  releaseLater(() => client.close());
  return client;
};

async function run(driver: ProcessDriver, script: string): Promise<string> {
  const client = await connected(driver);
  const execId = `e${Date.now()}`;
  await client.start({ execId, argv: ['/bin/sh', '-c', script], cwd: driver.workspaceOf(id) });
  let text = '';
  for await (const item of client.read(execId)) if (item.kind === 'stdout') text += item.data;
  return text;
}

afterEach(releaseAll);

describe('A session as plain processes', () => {
  it('is offered only where somebody says what it means', () => {
    const env = { VMUX_RUNNER_DIR: '/tmp/x', NATS_URL: 'nats://127.0.0.1:4222' };
    expect(configFrom(env).plainProcesses).toBe(false);
    expect(configFrom({ ...env, VMUX_PLAIN_PROCESSES: '1' }).plainProcesses).toBe(false);
    const asked = configFrom({ ...env, VMUX_PLAIN_PROCESSES: 'isolate-nothing' });
    expect(asked.plainProcesses).toBe(true);
  });

  it('says on every start that it isolates nothing, and what it lacks', async () => {
    const { driver, warnings } = opened();
    await driver.create(spec);
    await driver.destroy(id);
    await driver.create(spec);
    expect(warnings).toEqual([NO_ISOLATION, NO_ISOLATION]);
    const { offered, missing } = await driver.capabilities();
    expect(offered).toEqual(['pty', 'previews', 'egress']);
    expect(missing.diskLimit).toMatch(/no limit is enforced/);
    expect(driver.isolates).toBe(false);
  });

  it('works in a directory of its own, is found by the next runner, and leaves nothing', async () => {
    const { driver, open, dataDir } = opened();
    await driver.create(spec);
    expect(await run(driver, 'pwd; echo kept >file')).toBe(`${driver.workspaceOf(id)}\n`);
    const next = open();
    expect(await next.list()).toMatchObject([{ id, probe: { state: 'running' } }]);
    expect(await run(next, 'cat file')).toBe('kept\n');
    const client = await connected(next);
    const exec = { execId: 'long', argv: ['/bin/sh', '-c', 'echo $$; exec sleep 1000'] };
    const { pid } = await client.start(exec);
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    await next.destroy(id);
    await next.destroy(id);
    await until(() => !existsSync(`/proc/${pid}`));
    expect(readdirSync(dataDir)).toEqual([]);
    await expect(next.adopt(id)).rejects.toMatchObject({ next: 'lost' });
  });

  it('is dialled where its own processes listen, and nowhere else on the machine', async () => {
    const { driver } = opened();
    await driver.create(spec);
    const server = createServer((socket) => socket.end('of the machine'));
    releaseLater(() => void server.close());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port: theirs } = server.address() as AddressInfo;
    const client = await connected(driver);
    await expect(client.dial(theirs)).rejects.toMatchObject({ errno: 111 });
    const mine = await freePort();
    const script = `exec python3 -m http.server ${mine} --bind 127.0.0.1`;
    await client.start({ execId: 'serve', argv: ['/bin/sh', '-c', script] });
    const dialled = await until(() => client.dial(mine));
    dialled.end('GET / HTTP/1.0\r\n\r\n');
    const [answer] = await once(dialled, 'data');
    expect(String(answer)).toMatch(/^HTTP\/1.0 200/);
    dialled.destroy();
  }, 30_000);

  it('whose supervisor is killed is gone', async () => {
    const { driver, dataDir } = opened();
    await driver.create(spec);
    const [key] = readdirSync(dataDir);
    const { owner } = JSON.parse(readFileSync(join(dataDir, String(key), 'state.json'), 'utf8'));
    process.kill(Number(owner.split(':')[0]), 'SIGKILL');
    await until(async () => (await driver.probe(id)).state === 'gone');
    await expect(driver.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
  });

  it('that does not end when it is told to is ended all the same', async () => {
    const { dataDir, warnings } = opened();
    const slow = join(dataDir, '..', `${basename(dataDir)}-slow`);
    writeFileSync(slow, `#!/bin/sh\n${supervisorPath} "$@"\nexec sleep 1000\n`, { mode: 0o755 });
    releaseLater(() => rmSync(slow));
    const warn = (message: string) => void warnings.push(message);
    const driver = new ProcessDriver({ dataDir, supervisorPath: slow, warn });
    await driver.create(spec);
    const [key] = readdirSync(dataDir);
    const { owner } = JSON.parse(readFileSync(join(dataDir, String(key), 'state.json'), 'utf8'));
    const pid = Number(owner.split(':')[0]);
    releaseLater(() => {
      if (existsSync(`/proc/${pid}`)) process.kill(pid, 'SIGKILL');
    });
    await driver.destroy(id);
    expect(readdirSync(dataDir)).toEqual([]);
    await until(() => !existsSync(`/proc/${pid}`));
  }, 30_000);

  it('refuses what it cannot do', async () => {
    const { driver } = opened();
    const refusal = { next: 'refuse', reason: 'unsupported' };
    await expect(driver.create({ ...spec, image: 'x' })).rejects.toMatchObject(refusal);
    await expect(driver.create({ ...spec, gpu: 'T4' })).rejects.toMatchObject(refusal);
    const limited = { ...spec, needsDiskLimit: true };
    await expect(driver.create(limited)).rejects.toMatchObject(refusal);
    await expect(driver.suspend()).rejects.toMatchObject(refusal);
    await expect(driver.checkpoint()).rejects.toMatchObject(refusal);
    await driver.create(spec);
    await expect(driver.create(spec)).rejects.toMatchObject({ reason: 'exists' });
  });
});
