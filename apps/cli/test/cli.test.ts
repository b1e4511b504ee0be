import { createHash, randomBytes } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, releaseAll, skipUnless, temporaryDirectory, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { cli, startCli } from './cli';

// Each command line is a process of its own: on a busy machine that takes a while.
jest.setTimeout(60_000);

let stack: Stack;
let runner: FakeRunner;
let gateway: Gateway;
let port: number;
let env: NodeJS.ProcessEnv;

const serve = async () => {
  const settings = { VMUX_PORT: String(port), VMUX_LIVE_SESSIONS: '100' };
  gateway = await startGateway(stack, 'gateway', settings);
};
const vmux = (...args: string[]) => cli(args, env);
const sessionOf = async (...command: string[]) => {
  const { stdout } = await vmux('run', '-d', '--json', '--', ...command);
  return JSON.parse(stdout.toString()) as { session: string; exec: string };
};

beforeAll(async () => {
  stack = await startStack();
  port = await freePort();
  await startService(stack);
  await serve();
  runner = startRunner(stack);
  const VMUX_DATA_DIR = temporaryDirectory('cli');
  env = { VMUX_URL: gateway.url, VMUX_API_KEY: gateway.api.key ?? '', VMUX_DATA_DIR };
  runner.scripts.set('seven', async (exec) => {
    await exec.write('stdout', Buffer.from([0x00, 0xff, 0x1b, 0x0a]));
    await exec.write('stderr', 'err');
    await exec.exit(7);
  });
}, 90_000);
afterAll(releaseAll);

describe('the command line', () => {
  it('explains itself, each command too', async () => {
    const overview = await vmux('help');
    expect(overview).toMatchObject({ code: 0, stderr: '' });
    for (const name of ['run', 'exec', 'logs', 'ps', 'history', 'stop', 'rm', 'wait', 'up']) {
      expect(overview.stdout.toString()).toContain(`  ${name} `);
      const { code, stdout } = await vmux(name, '--help');
      expect(code).toBe(0);
      expect(stdout.toString()).toContain(`vmux ${name}`);
    }
    expect((await vmux('--version')).stdout.toString()).toMatch(/^vmux \d+\.\d+\.\d+\n$/);
  }, 60_000);

  it('suggests the command or the option that was meant', async () => {
    expect(await vmux('lgos')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('did you mean logs?'),
    });
    expect(await vmux('logs', '--ofset', '3', 'x')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('did you mean --offset?'),
    });
  });

  it('says what is missing when a command line is not whole', async () => {
    const cases: [string[], string][] = [
      [['run'], 'no command to run'],
      [['run', 'echo', '--', 'x'], 'does not take "echo"'],
      [['run', 'echo'], 'put it after --: vmux run -- echo'],
      [['run', '-p', '70000', '--', 'x'], 'a port from 1 to 65535'],
      [['run', '--memory', 'much', '--', 'x'], '--memory takes a size'],
      [['forward', 'x', '0'], 'a port is a number from 1 to 65535'],
      [['attach', 'x'], 'needs a terminal'],
      [['exec', '-t', 'x', '--', 'y'], '-t needs a terminal'],
      [['exec', '--', 'x'], 'takes one session'],
      [['logs', 'x', '--stream', 'stdout'], '--stream needs --exec'],
      [['run', '--timeout', 'soon', '--', 'x'], '--timeout takes a time'],
    ];
    for (const [args, message] of cases)
      expect(await vmux(...args)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(message),
      });
  });

  it('names a session that does not exist, without letting it control the terminal', async () => {
    expect(await vmux('logs', 'nobody-0000')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no session "nobody-0000"'),
    });
    const { stderr } = await vmux('logs', 'x\u001b]0;title\u0007');
    expect(stderr).toContain('\\u001b]0;title\\u0007');
    expect(stderr).not.toContain('\u001b');
  });

  it('says how to get a server when none runs', async () => {
    const VMUX_DATA_DIR = temporaryDirectory('none');
    expect(await cli(['ps'], { VMUX_DATA_DIR })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('vmux up'),
    });
    expect(await cli(['status', '--json'], { VMUX_DATA_DIR })).toMatchObject({ code: 1 });
    const VMUX_URL = `http://127.0.0.1:${await freePort()}`;
    expect(await cli(['ps'], { VMUX_URL, VMUX_API_KEY: 'x', VMUX_DATA_DIR })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`no server answers at ${VMUX_URL}`),
    });
  });
});

describe('vmux run and exec', () => {
  it('hand on bytes and exit code as they are', async () => {
    const ran = await vmux('run', '--name', 'seven', '--', 'seven');
    expect(ran).toMatchObject({ code: 7, stderr: 'err' });
    expect(ran.stdout).toEqual(Buffer.from([0x00, 0xff, 0x1b, 0x0a]));
    expect(await vmux('exec', '@last', '--', 'seven')).toMatchObject({ code: 7, stderr: 'err' });
    expect(await vmux('wait', '@last')).toMatchObject({ code: 7 });
  });

  it('take one argument as a shell line and several as they are, with variables', async () => {
    await vmux('run', '--name', 'args', '-e', 'A=b=c', '--', 'printf', '%s', 'a b');
    const exec = [...runner.execs.values()].at(-1);
    expect(exec?.spec.command).toEqual({ kind: 'argv', argv: ['printf', '%s', 'a b'] });
    expect(exec?.env).toMatchObject({ A: 'b=c' });
    const line = await vmux('run', '--', 'echo $A');
    expect(line.stdout.toString()).toBe('echo $A');
  });

  it('exit with 124 when the time is over', async () => {
    runner.scripts.set('endless', (exec) => until(() => exec.hasEnded).then(() => undefined));
    const { code, stderr } = await vmux('run', '--timeout', '50ms', '--', 'endless');
    expect({ code, stderr }).toEqual({ code: 124, stderr: 'vmux: its time was over\n' });
  });

  it('exit with 125 when nobody can tell how the command ended', async () => {
    runner.scripts.set('lost', async (exec) => {
      await exec.write('stdout', 'begun');
      await runner.report(exec.sandbox, 'SandboxLost', {
        evidence: { kind: 'probe', message: 'it was killed' },
      });
    });
    const { code, stdout, stderr } = await vmux('run', '--name', 'lost', '--', 'lost');
    expect({ code, out: stdout.toString() }).toEqual({ code: 125, out: 'begun' });
    expect(stderr).toContain('nobody can tell how it ended (sandbox lost)');
  });

  it('hand INT on to the command when no terminal is there, and end it when told again', async () => {
    runner.scripts.set('begun', async (exec) => {
      await exec.write('stdout', 'begun');
      await until(() => exec.hasEnded, { timeoutMs: 20_000 });
    });
    const running = startCli(['run', '--', 'begun'], env);
    await until(() => running.stdout() === 'begun');
    running.child.kill('SIGINT');
    await until(() =>
      runner.orders.some(({ type, data }) => type === 'SignalExec' && data.signal === 'SIGINT'),
    );
    running.child.kill('SIGINT');
    expect((await running.ended).code).toBe(128 + 15);
  });

  it('send the directory along, once as long as it does not change', async () => {
    const PWD = temporaryDirectory('project');
    writeFileSync(join(PWD, 'a.txt'), 'a');
    const uploads = () => gateway.log().split('/v1/bundles/:sha256').length - 1;
    const bundles = () =>
      runner.orders.flatMap((order) =>
        order.type === 'CreateSandbox' && order.data.spec.bundle ? [order.data.spec.bundle] : [],
      );
    for (const name of ['sent', 'again'])
      expect(await cli(['run', '--name', name, '--', 'seven'], { ...env, PWD })).toMatchObject({
        code: 7,
        stderr: 'err',
      });
    expect(uploads()).toBe(1);
    expect(new Set(bundles()).size).toBe(1);
    await cli(['run', '--no-bundle', '--', 'seven'], { ...env, PWD });
    writeFileSync(join(PWD, 'a.txt'), 'b');
    await cli(['run', '--', 'seven'], { ...env, PWD });
    expect(uploads()).toBe(2);
    expect(new Set(bundles()).size).toBe(2);
  }, 60_000);

  it('remove the session with --rm', async () => {
    expect(await vmux('run', '--rm', '--name', 'gone', '--', 'seven')).toMatchObject({ code: 7 });
    const { stderr } = await vmux('inspect', '@last');
    expect(stderr).toContain('deleted');
  });

  const hasScript = existsSync('/usr/bin/script') && process.platform === 'linux';
  skipUnless(hasScript, 'no util-linux script(1) for a terminal')(
    'detach at Ctrl-C on a terminal, and the command goes on',
    async () => {
      let goOn = false;
      runner.scripts.set('patient', async (exec) => {
        await exec.write('stdout', 'begun');
        await until(() => goOn, { timeoutMs: 25_000 });
        await exec.write('stdout', ' ended');
      });
      const running = startCli([], env, (node, program) => [
        '/usr/bin/script',
        ...['-qefc', `exec ${node} ${program} run --name patient -- patient`, '/dev/null'],
      ]);
      await until(() => running.stdout().includes('begun'));
      running.child.stdin?.write('\u0003');
      const { code, stdout } = await running.ended;
      const [, id = ''] = /vmux logs -f (\S+);/.exec(stdout.toString()) ?? [];
      expect({ code, id }).toEqual({ code: 0, id: expect.stringMatching(/^patient-[0-9a-f]{4}$/) });
      goOn = true;
      expect(await vmux('wait', id)).toMatchObject({ code: 0 });
      expect((await vmux('logs', id)).stdout.toString()).toBe('begun ended');
    },
    60_000,
  );
});

describe('vmux logs, ps, history', () => {
  it('follows 20 MB of output through gateways that are killed, byte for byte', async () => {
    const whole = randomBytes(20_000_000);
    let killsLeft = 4;
    let isRead = false;
    runner.scripts.set('flood', async (exec) => {
      for (let at = 0; at < whole.length; at += 100_000) {
        await exec.write('stdout', whole.subarray(at, at + 100_000));
        await until(() => isRead, { timeoutMs: 60_000 });
        if (at > 0 && at % 4_000_000 === 0 && killsLeft > 0) {
          killsLeft -= 1;
          await gateway.process.kill('SIGKILL');
          await serve();
        }
      }
    });
    const { session, exec } = await sessionOf('flood');
    const reader = startCli(['logs', '-f', session, '--exec', exec], env);
    await until(() => reader.hasSaid(), { timeoutMs: 60_000 });
    isRead = true;
    const { code, stdout, stderr } = await reader.ended;
    expect({ code, stderr, killsLeft }).toEqual({ code: 0, stderr: '', killsLeft: 0 });
    const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
    expect(digest(stdout)).toBe(digest(whole));
    const rest = await vmux('logs', session, '--offset', '12345678');
    expect(digest(rest.stdout)).toBe(digest(whole.subarray(12_345_678)));
  }, 180_000);

  it('shows sessions and what happened to them as JSON', async () => {
    const { session, exec } = await sessionOf('hello');
    await vmux('wait', session);
    const listed = await until(async () => {
      const all = JSON.parse((await vmux('ps', '--json')).stdout.toString()) as { id: string }[];
      return all.find(({ id }) => id === session);
    });
    expect(listed).toMatchObject({ status: 'running', provider: 'ns' });
    const told = (await vmux('history', session, '--json')).stdout.toString().trim().split('\n');
    expect(JSON.parse(told[0] ?? '')).toMatchObject({ revision: 0, type: 'SessionCreated' });
    const lines = (await vmux('logs', session, '--json')).stdout.toString().trim().split('\n');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      ...{ kind: 'bytes', exec, stream: 'stdout', offset: 0 },
      b64: Buffer.from('hello').toString('base64'),
    });
    const shown = JSON.parse((await vmux('inspect', '--json', session)).stdout.toString());
    expect(shown).toMatchObject({ session: { id: session }, execs: [{ id: exec }] });
  });

  it('finds a session by the beginning of its id, and says when that is not enough', async () => {
    const ids: string[] = [];
    for (const name of ['prefix-one', 'prefix-two']) {
      const { stdout } = await vmux('run', '-d', '--name', name, '--', 'hello');
      ids.push(stdout.toString().trim());
    }
    const [first = ''] = ids;
    await until(async () => (await vmux('ps')).stdout.includes('prefix-two'));
    const { stderr } = await vmux('stop', 'prefix');
    for (const id of ids) expect(stderr).toContain(id);
    expect((await vmux('stop', 'prefix-o')).stdout.toString()).toBe(`${first}\n`);
    expect(await vmux('exec', first, '--', 'hello')).toMatchObject({ code: 1 });
    expect((await vmux('rm', first)).stdout.toString()).toBe(`${first}\n`);
  });
});
