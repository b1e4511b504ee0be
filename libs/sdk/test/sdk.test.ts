import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { freePort, releaseAll, releaseLater, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { ConnectionFailed, type LogItem, Sandbox, Vmux, VmuxError } from '../src/index';

let stack: Stack;
let runner: FakeRunner;
let gateway: Gateway;
let port: number;
let vmux: Vmux;

const serve = async () => {
  gateway = await startGateway(stack, 'gateway', { VMUX_PORT: String(port) });
};

beforeAll(async () => {
  stack = await startStack();
  port = await freePort();
  await startService(stack);
  await serve();
  runner = startRunner(stack);
  vmux = new Vmux({ url: gateway.url, apiKey: gateway.api.key ?? '' });
}, 90_000);
afterAll(releaseAll);

const digestOf = async (items: AsyncIterable<LogItem>) => {
  const sum = createHash('sha256');
  let size = 0;
  for await (const item of items) {
    if (item.kind !== 'bytes') throw new Error('there is a gap');
    sum.update(item.bytes);
    size += item.bytes.length;
  }
  return { digest: sum.digest('hex'), size };
};

describe('the SDK', () => {
  it('asks whether a session could be created, and none is', async () => {
    const names = async () => {
      const found: string[] = [];
      for await (const { name } of Sandbox.list({ vmux })) found.push(name);
      return found;
    };
    expect(await Sandbox.check({ vmux, name: 'asked' })).toMatchObject({ provider: 'ns' });
    const elsewhere = Sandbox.check({ vmux, name: 'asked', provider: 'nowhere' });
    await expect(elsewhere).rejects.toMatchObject({ message: expect.stringContaining('nowhere') });
    const created = await Sandbox.create({ vmux, name: 'after' });
    await until(async () => (await names()).includes('after'));
    expect(await names()).not.toContain('asked');
    await created.delete({ force: true });
  });

  it('has nothing created by a server that is too old to be asked', async () => {
    const asked: string[] = [];
    const older = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      const creates = request.method === 'POST' && request.url?.split('?')[0] === '/v1/sessions';
      response.writeHead(creates ? 201 : 404, { 'content-type': 'application/json' });
      const error = { code: 'not_found', message: 'nothing', hint: null, details: {} };
      response.end(JSON.stringify(creates ? { id: 'made-0000' } : error));
    });
    releaseLater(async () => {
      older.closeAllConnections();
      older.close();
    });
    await once(older.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(older.address() as AddressInfo).port}`;
    const check = Sandbox.check({ vmux: new Vmux({ url, apiKey: 'k' }) });
    await expect(check).rejects.toMatchObject({ code: 'not_found' });
    expect(asked).toEqual(['POST /v1/sessions/check']);
  });

  it('runs a command and hands out its bytes and its exit code', async () => {
    runner.scripts.set('both', async (exec) => {
      await exec.write('stdout', Buffer.from([0xff, 0x00, 0x0a]));
      await exec.write('stderr', 'oh\n');
      await exec.exit(3);
    });
    const sandbox = await Sandbox.create({ vmux, name: 'sdk' });
    const out: Buffer[] = [];
    const result = await sandbox.commands.run('both', { onStdout: (b) => void out.push(b) });
    expect(Buffer.concat(out)).toEqual(Buffer.from([0xff, 0x00, 0x0a]));
    expect(result).toMatchObject({
      exitCode: 3,
      exit: { kind: 'exited', code: 3 },
      ...{ stderr: 'oh\n', truncated: false, timedOut: false },
    });
    expect(await sandbox.commands.list()).toMatchObject([{ id: result.id, status: 'exited' }]);
  });

  it('passes a list as argv, with variables and a directory', async () => {
    const sandbox = await Sandbox.create({ vmux, name: 'sdk' });
    const { id } = await sandbox.commands.run(['printf', 'a b'], { env: { A: '1' }, cwd: '/tmp' });
    const exec = runner.execs.get(id);
    expect(exec?.spec).toMatchObject({
      command: { kind: 'argv', argv: ['printf', 'a b'] },
      cwd: '/tmp',
    });
    expect(exec?.env).toMatchObject({ A: '1' });
  });

  it('finds a session again, lists it, stops it and removes it', async () => {
    const { id } = await Sandbox.create({ vmux, name: 'again', labels: { team: 'red' } });
    const sandbox = await Sandbox.connect(id, { vmux });
    await until(async () => (await sandbox.info()).status === 'running');
    const listed = await until(async () => {
      for await (const each of Sandbox.list({ vmux, labels: { team: 'red' } })) return each;
      return null;
    });
    expect(listed).toMatchObject({ id, name: 'again', provider: 'ns' });
    await Sandbox.kill(id, { vmux });
    expect(await sandbox.untilEnded()).toBe('stopped');
    await sandbox.delete();
    await expect(sandbox.info()).rejects.toMatchObject({ code: 'session_deleted', status: 410 });
  });

  it('tells the history in order, and goes on with what happens', async () => {
    const sandbox = await Sandbox.create({ vmux, name: 'told' });
    const seen: string[] = [];
    for await (const { revision, type } of sandbox.history({ follow: true })) {
      expect(revision).toBe(seen.length);
      seen.push(type);
      if (type === 'SandboxStarted') await sandbox.commands.start('hello');
      if (type === 'ExecExited') break;
    }
    expect(seen[0]).toBe('SessionCreated');
    const recorded: string[] = [];
    for await (const { type } of sandbox.history()) recorded.push(type);
    expect(recorded.slice(0, seen.length)).toEqual(seen);
  });

  it('reads output through gateways that are killed, without a lost or repeated byte', async () => {
    const whole = randomBytes(4 * 1024 * 1024);
    let killsLeft = 3;
    runner.scripts.set('flood', async (exec) => {
      for (let at = 0; at < whole.length; at += 100_000) {
        await exec.write(at % 200_000 ? 'stderr' : 'stdout', whole.subarray(at, at + 100_000));
        if (at > 0 && at % 1_000_000 === 0 && killsLeft > 0) {
          killsLeft -= 1;
          await gateway.process.kill('SIGKILL');
          await serve();
        }
      }
    });
    const sandbox = await Sandbox.create({ vmux, name: 'flood' });
    const command = await sandbox.commands.start('flood');
    const expected = {
      digest: createHash('sha256').update(whole).digest('hex'),
      size: whole.length,
    };
    expect(await digestOf(command.logs({ follow: true }))).toEqual(expected);
    expect(killsLeft).toBe(0);
    expect(await digestOf(command.logs())).toEqual(expected);
    const tail = createHash('sha256').update(whole.subarray(1_234_567)).digest('hex');
    expect((await digestOf(sandbox.logs({ offset: 1_234_567 }))).digest).toBe(tail);
    expect((await command.ended()).exit).toEqual({ kind: 'exited', code: 0 });
  }, 120_000);

  it('shows bytes that no longer exist as a gap', async () => {
    runner.scripts.set('lossy', async (exec) => {
      await exec.write('stdout', 'ab');
      await exec.lose('stdout', 5);
      await exec.write('stdout', 'cd');
    });
    const sandbox = await Sandbox.create({ vmux, name: 'lossy' });
    const result = await sandbox.commands.run('lossy');
    expect(result).toMatchObject({ stdout: 'abcd', truncated: true });
    const items: LogItem[] = [];
    for await (const item of sandbox.logs()) items.push(item);
    expect(items[1]).toMatchObject({ kind: 'gap', from: 2, to: 7 });
  });

  it('says that a command ran out of time', async () => {
    runner.scripts.set('slow', (exec) =>
      until(() => exec.hasEnded, { timeoutMs: 20_000 }).then(() => undefined),
    );
    const sandbox = await Sandbox.create({ vmux, name: 'slow' });
    const result = await sandbox.commands.run('slow', { timeoutMs: 50 });
    expect(result).toMatchObject({ timedOut: true, exitCode: null, exit: { kind: 'signalled' } });
  });

  it('stops waiting when told to, and the command goes on', async () => {
    let goOn = false;
    runner.scripts.set('patient', async (exec) => {
      await exec.write('stdout', 'begun');
      await until(() => goOn, { timeoutMs: 20_000 });
    });
    const sandbox = await Sandbox.create({ vmux, name: 'patient' });
    const stop = new AbortController();
    const waiting = sandbox.commands.run('patient', {
      signal: stop.signal,
      onStdout: () => stop.abort(new Error('enough')),
    });
    await expect(waiting).rejects.toThrow('enough');
    goOn = true;
    const [info] = await sandbox.commands.list();
    const { exit } = await sandbox.commands.get(info?.id ?? '').ended();
    expect(exit).toEqual({ kind: 'exited', code: 0 });
  });

  it('throws errors that carry a code, a status and what to do', async () => {
    const refused = Sandbox.connect('nobody-0000', { vmux });
    await expect(refused).rejects.toBeInstanceOf(VmuxError);
    await expect(refused).rejects.toMatchObject({
      ...{ code: 'session_not_found', status: 404, retryable: false },
      hint: expect.stringContaining('list your sessions'),
    });
    const stranger = new Vmux({ url: gateway.url, apiKey: 'vmux_no_key' });
    await expect(Sandbox.create({ vmux: stranger })).rejects.toMatchObject({ status: 401 });
    expect(() => Vmux.fromEnvironment({})).toThrow('no gateway');
  });

  it('says so when nobody answers', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const nobody = new Vmux({ url, apiKey: 'x', retryForMs: 0 });
    const failed = Sandbox.create({ vmux: nobody });
    await expect(failed).rejects.toBeInstanceOf(ConnectionFailed);
    await expect(failed).rejects.toMatchObject({ code: 'connection_failed', retryable: true });
    expect(await nobody.isUp()).toBe(false);
    expect(await vmux.isUp()).toBe(true);
  });
});

describe('a change that got no answer', () => {
  it('is sent again under the same key until it is answered', async () => {
    const keys: unknown[] = [];
    const server = createServer((request, response) => {
      keys.push(request.headers['idempotency-key']);
      if (keys.length === 1) request.socket.destroy();
      else if (keys.length === 2)
        response
          .writeHead(503, { 'content-type': 'application/json' })
          .end('{"code":"overloaded","message":"busy","hint":"again","details":{}}');
      else response.writeHead(201, { 'content-type': 'application/json' }).end('{"id":"a-0001"}');
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port: at } = server.address() as AddressInfo;
    try {
      const flaky = new Vmux({ url: `http://127.0.0.1:${at}`, apiKey: 'x' });
      expect((await Sandbox.create({ vmux: flaky })).id).toBe('a-0001');
      expect(keys).toHaveLength(3);
      expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
      expect(new Set(keys).size).toBe(1);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
