import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, skipUnless, temporaryDirectory, until } from '@vmux/testing';
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

let stack: Stack;
let runner: FakeRunner;
let gateway: Gateway;
let env: NodeJS.ProcessEnv;

const vmux = (...args: string[]) => cli(args, env);
const said = async (...args: string[]) => (await vmux(...args)).stdout.toString();
const sessionOf = async (...command: string[]) => {
  const { stdout } = await vmux('run', '-d', '--json', '--', ...command);
  const { session, exec } = JSON.parse(stdout.toString()) as { session: string; exec: string };
  await vmux('wait', session);
  return { session, exec };
};

beforeAll(async () => {
  stack = await startStack();
  await startService(stack);
  gateway = await startGateway(stack, 'gateway', { VMUX_LIVE_SESSIONS: '100' });
  runner = startRunner(stack);
  env = {
    ...{ VMUX_URL: gateway.url, VMUX_API_KEY: gateway.api.key ?? '' },
    ...{ VMUX_DATA_DIR: temporaryDirectory('cli'), HOME: temporaryDirectory('home') },
  };
}, 90_000);
afterAll(releaseAll);

describe('vmux logs', () => {
  it('starts with the last lines, however long they are', async () => {
    const lines = Array.from({ length: 3000 }, (_, at) => `line ${at} ${'x'.repeat(100)}`);
    runner.scripts.set('lines', (exec) => exec.write('stdout', `${lines.join('\n')}\nrest`));
    const { session, exec } = await sessionOf('lines');
    expect(await said('logs', session, '--tail', '1')).toBe('rest');
    expect(await said('logs', session, '-n', '3')).toBe(`${lines.slice(-2).join('\n')}\nrest`);
    expect(await said('logs', session, '-n', '2001')).toBe(
      `${lines.slice(-2000).join('\n')}\nrest`,
    );
    expect(await said('logs', session, '-n', '9999')).toBe(`${lines.join('\n')}\nrest`);
    expect(await said('logs', session, '-n', '0')).toBe('');
    runner.scripts.set('ended', (each) => each.write('stderr', 'a\nb\nc\n'));
    await vmux('exec', session, '--', 'ended');
    expect(await said('logs', session, '-n', '2')).toBe('b\nc\n');
    expect(await said('logs', session, '--exec', exec, '--stream', 'stdout', '-n', '1')).toBe(
      'rest',
    );
  }, 60_000);

  it('starts with what was written since a time', async () => {
    const { session } = await sessionOf('early');
    await until(() => Date.now() % 1000 < 100);
    const between = new Date().toISOString();
    await vmux('exec', session, '--', 'late');
    expect(await said('logs', session)).toBe('earlylate');
    expect(await said('logs', session, '--since', between)).toBe('late');
    expect(await said('logs', session, '--since', '1h')).toBe('earlylate');
    expect(await vmux('logs', session, '--since', 'noon')).toMatchObject({ code: 2 });
    expect(await vmux('logs', session, '--since', '1h', '--tail', '1')).toMatchObject({ code: 2 });
  }, 60_000);
});

describe('vmux replay', () => {
  it('writes a terminal as an asciicast, without dividing a character', async () => {
    runner.scripts.set('film', async (exec) => {
      const bytes = Buffer.from('日本 é\r\n');
      for (const byte of bytes) await exec.write('pty', Buffer.from([byte]));
      const place = { execId: exec.id, number: 0, offset: bytes.length };
      await exec.send([{ kind: 'resize', ...place, cols: 100, rows: 30, at: Date.now() }]);
      await exec.write('pty', 'end');
    });
    const { session } = await sessionOf('film');
    const file = join(temporaryDirectory('cast'), 'film.cast');
    const { exec } = JSON.parse(await said('exec', session, '--json', '--', 'film')) as {
      exec: string;
    };
    expect(await vmux('replay', session, '--exec', exec, '--cast', file)).toMatchObject({
      code: 0,
    });
    const [head, ...lines] = readFileSync(file, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(head).toMatchObject({ version: 2, width: 80, height: 24 });
    const shown = lines.filter(([, kind]) => kind === 'o').map(([, , text]) => text);
    expect(shown.join('')).toBe('日本 é\r\nend');
    expect(shown.join('')).not.toContain('\ufffd');
    expect(lines).toContainEqual([expect.any(Number), 'r', '100x30']);
    const times = lines.map(([at]) => at as number);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    expect(await said('replay', session, '--exec', exec, '--speed', '1000')).toBe('日本 é\r\nend');
  }, 60_000);
});

describe('vmux replay --cast', () => {
  it('lets the lines of what had no terminal begin on the left', async () => {
    runner.scripts.set('lines', async (exec) => {
      for (const text of ['one\ntwo\r', '\n\nthree', '\n']) await exec.write('stdout', text);
    });
    const { session } = await sessionOf('lines');
    const [, ...lines] = (await said('replay', session, '--cast', '-')).trim().split('\n');
    const shown = lines.map((line) => JSON.parse(line)[2]).join('');
    expect(shown).toBe('one\r\ntwo\r\n\r\nthree\r\n');
  }, 60_000);

  it('says in one line that its file cannot be written', async () => {
    const { session } = await sessionOf('film');
    const { code, stderr } = await vmux('replay', session, '--cast', '/nowhere/film.cast');
    expect(code).toBe(1);
    expect(stderr).toMatch(/^vmux: [^\n]*\/nowhere\/film\.cast[^\n]*\n$/);
  }, 60_000);
});

describe('keys and logins', () => {
  it('makes keys that work, and revokes them', async () => {
    const key = (await said('keys', 'create', 'reader', '--scope', 'sessions:read')).trim();
    expect(key).toMatch(/^vmux_/);
    const listed = JSON.parse(await said('keys', '--json')) as { id: string; name: string }[];
    const [id = ''] = listed.filter(({ name }) => name === 'reader').map((each) => each.id);
    const asReader = { ...env, VMUX_API_KEY: key };
    expect(await cli(['ps', '--json'], asReader)).toMatchObject({ code: 0 });
    expect(await cli(['run', '--', 'x'], asReader)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('vmux keys'),
    });
    expect(await vmux('keys', 'revoke', id)).toMatchObject({ code: 0 });
    expect(await cli(['ps'], asReader)).toMatchObject({ code: 1 });
    expect(await vmux('keys', 'create', 'x', '--scope', 'everything')).toMatchObject({ code: 2 });
  }, 60_000);

  it('remembers a server after trying the key, readable by its user alone', async () => {
    const HOME = temporaryDirectory('home');
    const own = { HOME, VMUX_DATA_DIR: temporaryDirectory('data') };
    const logIn = async (key: string) => {
      const running = startCli([], own, (node, program) => [node, program, 'login', gateway.url]);
      running.child.stdin?.end(`${key}\n`);
      return running.ended;
    };
    expect(await logIn('vmux_wrong_key')).toMatchObject({ code: 1 });
    expect(await cli(['ps'], own)).toMatchObject({ code: 1 });
    expect(await logIn(gateway.api.key ?? '')).toMatchObject({ code: 0 });
    expect(statSync(join(HOME, '.config/vmux/login.json')).mode & 0o777).toBe(0o600);
    expect(await cli(['ps'], own)).toMatchObject({ code: 0 });
    expect(await cli(['logout'], own)).toMatchObject({ code: 0 });
    expect(await cli(['ps'], own)).toMatchObject({ code: 1 });
  }, 60_000);
});

describe('completion', () => {
  it('knows commands, options and sessions', async () => {
    const { session } = await sessionOf('complete');
    const words = async (...typed: string[]) =>
      (await said('completion', '--words', ...typed)).trim().split('\n');
    expect(await words('')).toEqual(expect.arrayContaining(['run', 'attach', 'doctor']));
    expect(await words('run', '--')).toEqual(expect.arrayContaining(['--detach', '--env-file']));
    const found = await until(async () => {
      const all = await words('logs', '');
      return all.includes(session) && all;
    });
    expect(found).toContain('@last');
  }, 60_000);

  it.each(['bash', 'zsh', 'fish'])('is a script that %s takes', async (shell) => {
    const script = await said('completion', shell);
    expect(script).toContain('completion --words');
    if (spawnSync(shell, ['--version']).status !== 0) return;
    expect(() => execFileSync(shell, ['-n'], { input: script })).not.toThrow();
  });

  skipUnless(spawnSync('bash', ['--version']).status === 0, 'no bash')(
    'completes in bash',
    async () => {
      const script = `vmux() { "$NODE" "$PROGRAM" "$@"; }
${await said('completion', 'bash')}
COMP_WORDS=(vmux hist); COMP_CWORD=1; _vmux; echo "\${COMPREPLY[@]}"`;
      const program = join(__dirname, '../../../dist/apps/cli/src/main.js');
      const shown = execFileSync('bash', ['-c', script], {
        env: { ...process.env, ...env, NODE: process.execPath, PROGRAM: program },
      });
      expect(shown.toString()).toBe('history\n');
    },
  );
});

describe('vmux doctor', () => {
  it('says what there is, and how to mend what there is not', async () => {
    const { code, stdout } = await vmux('doctor', '--json');
    const { well, findings } = JSON.parse(stdout.toString());
    expect({ code, well }).toEqual({ code: 0, well: true });
    expect(findings).toContainEqual(
      expect.objectContaining({
        what: 'server',
        state: 'good',
        detail: `answers at ${gateway.url}`,
      }),
    );
    const lacking = await cli(['doctor'], { ...env, PATH: '/nowhere' });
    expect(lacking.stdout.toString()).toContain('BAD   openssl: not found\n      do: sudo apt-get');
    expect(lacking.code).toBe(1);
  }, 60_000);

  it('looks, as root, for what disks are cloned with', async () => {
    const { findings } = JSON.parse((await vmux('doctor', '--json')).stdout.toString());
    const found = findings.filter(({ what }: { what: string }) => what === 'mkfs.btrfs');
    expect(found).toHaveLength(process.getuid?.() === 0 ? 1 : 0);
  });
});
