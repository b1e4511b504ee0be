import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, releaseAll, releaseLater, skipUnless, temporaryDirectory } from '@vmux/testing';
import {
  type Gateway,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';
import { cli } from './cli';

jest.setTimeout(60_000);

let gateway: Gateway;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  const stack = await startStack();
  await startService(stack);
  gateway = await startGateway(stack, 'gateway');
  startRunner(stack);
  env = {
    ...{ VMUX_URL: gateway.url, VMUX_API_KEY: gateway.api.key ?? '' },
    ...{ VMUX_DATA_DIR: temporaryDirectory('cli'), HOME: temporaryDirectory('home') },
  };
}, 90_000);
afterAll(releaseAll);

const projectWith = (file: string, content: string): string => {
  const directory = temporaryDirectory('project');
  writeFileSync(join(directory, file), content);
  return directory;
};

/** One line that says what is wrong and what to do, and a code that is not 0. */
const expectRefused = async (
  args: readonly string[],
  { code, says, more = {} }: { code: number; says: readonly string[]; more?: NodeJS.ProcessEnv },
) => {
  const said = await cli(args, { ...env, ...more });
  expect({ args, code: said.code, stdout: said.stdout.toString() }).toEqual({
    args,
    code,
    stdout: '',
  });
  expect(said.stderr).toMatch(/^vmux: [^\n]+\n$/);
  for (const text of says) expect(said.stderr).toContain(text);
};

describe('what cannot be done is said in one line, with what to do', () => {
  it('an unknown session', async () => {
    const says = ['there is no session "nobody-0000"', 'vmux ps -a'];
    for (const args of [
      ['logs', 'nobody-0000'],
      ['exec', 'nobody-0000', '--', 'x'],
      ['attach', '--watch', 'nobody-0000'],
      ['ports', 'nobody-0000'],
      ['forward', 'nobody-0000', '8000'],
      ['cp', 'nobody-0000:a', 'b'],
      ['stop', 'nobody-0000'],
      ['stats', 'nobody-0000'],
      ['replay', 'nobody-0000'],
    ])
      await expectRefused(args, { code: 1, says });
  });

  it('a wrong provider', async () => {
    await expectRefused(['run', '--provider', 'nss', '--', 'x'], {
      ...{
        code: 1,
        says: ['no runner offers the provider "nss": did you mean ns?', 'vmux status'],
      },
    });
  });

  it('a missing command', async () => {
    await expectRefused(['run'], {
      code: 2,
      says: ['no command to run', 'vmux run -- echo hello'],
    });
    await expectRefused(['exec', 'x'], { code: 2, says: ['no command to run', 'put it after --'] });
    await expectRefused(['run', '--', ''], { code: 2, says: ['no command to run'] });
  });

  it('a port out of range', async () => {
    for (const port of ['0', '65536', 'http', '-1', '8000.5'])
      await expectRefused(['run', `--port=${port}`, '--', 'x'], {
        ...{ code: 2, says: [`a port from 1 to 65535, not "${port}"`] },
      });
    await expectRefused(['forward', 'x', '99999'], { code: 2, says: ['from 1 to 65535'] });
    await expectRefused(['open', 'x', '0'], { code: 2, says: ['from 1 to 65535'] });
  });

  it('no server', async () => {
    const VMUX_DATA_DIR = temporaryDirectory('none');
    const none = { VMUX_URL: '', VMUX_API_KEY: '', VMUX_DATA_DIR };
    await expectRefused(['ps'], {
      code: 1,
      says: ['no vmux server runs here', 'vmux up'],
      more: none,
    });
    const VMUX_URL = `http://127.0.0.1:${await freePort()}`;
    await expectRefused(['ps'], {
      code: 1,
      says: [`no server answers at ${VMUX_URL}`],
      more: { VMUX_URL },
    });
    const refused = { VMUX_API_KEY: 'vmux_wrong_key' };
    await expectRefused(['ps'], { code: 1, says: ['vmux login'], more: refused });
  });

  it('a bundle that is too large', async () => {
    const PWD = projectWith('small', 'x');
    writeFileSync(join(PWD, 'weights.bin'), '');
    truncateSync(join(PWD, 'weights.bin'), 3 * 1024 ** 3);
    await expectRefused(['run', '--', 'x'], {
      ...{ code: 1, says: ['weights.bin (3072 MiB)', '.vmuxignore'], more: { PWD } },
    });
  });

  it('a vmux.toml that is wrong', async () => {
    const cases: [string, string][] = [
      ['[targets.web\n', 'vmux.toml:1: '],
      ['[targets.web]\ncommand = "x"\nports = [0]\n', 'vmux.toml:3: targets.web: ports must be'],
      ['[targets.web]\n\ncomand = "x"\n', 'vmux.toml:3: targets.web: there is no key "comand"'],
      ['[targets.web]\ncommand = "\u001b[31m"\n\u0007 = 1\n', 'vmux.toml:'],
    ];
    for (const [text, says] of cases)
      await expectRefused(['run', 'web'], {
        ...{ code: 1, says: [says], more: { PWD: projectWith('vmux.toml', text) } },
      });
    await expectRefused(['run', 'wep'], {
      ...{ code: 2, says: ['no target "wep": did you mean web?'] },
      more: { PWD: projectWith('vmux.toml', '[targets.web]\ncommand = "x"\n') },
    });
  });

  const canMount = process.getuid?.() === 0 && spawnSync('mount', ['--version']).status === 0;
  skipUnless(canMount, 'a small disk needs root to mount it')('a disk that is full', async () => {
    const VMUX_DATA_DIR = temporaryDirectory('full');
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'vmux-test', VMUX_DATA_DIR]);
    releaseLater(() => void execFileSync('umount', [VMUX_DATA_DIR]));
    const none = { VMUX_URL: '', VMUX_API_KEY: '', VMUX_DATA_DIR };
    await expectRefused(['run', '--', 'x'], {
      ...{ code: 1, says: ['is full: ', 'VMUX_DATA_DIR'], more: none },
    });
  });

  it('text that is not ours, without letting it control the terminal', async () => {
    for (const args of [
      ['logs', 'x\u001b]0;title\u0007'],
      ['run', '--provider', 'n\u001b[2J', '--', 'x'],
      ['\u001b[31mrun'],
      ['run', '--\u009bx'],
      ['run', '-p', '\u202e', '--', 'x'],
    ]) {
      const { code, stderr } = await cli(args, env);
      expect(code).not.toBe(0);
      expect(stderr.slice(0, -1)).not.toMatch(/[\p{Cc}\u202e]/u);
    }
  });
});

describe('vmux run --dry-run', () => {
  it('says what would be run and sent, from options over vmux.toml, and does nothing', async () => {
    const text =
      '[targets.web]\ncommand = "x"\nports = [1]\nmemory = "1G"\nenv = { A = "1", B = "2" }\n';
    const PWD = projectWith('vmux.toml', text);
    writeFileSync(join(PWD, 'vars'), '# comment\nexport B="from file"\nC=c=d\n');
    const { code, stdout } = await cli(
      [
        ...[
          'run',
          'web',
          '--dry-run',
          '--json',
          '--env-file',
          'vars',
          '-e',
          'A=over',
          '-p',
          '8000',
        ],
        ...['-p', '9000', '--cpus', '0.5', '--gpu', 'T4', '--provider', 'modal', '--egress'],
        ...['--timeout', '5m', '--idle-timeout', '1h', '--keep', '24h', '--label', 'team=red'],
        ...['--max-runtime', '8h', '--checkpoint-every', '15m', '--rehydrate', 'never'],
      ],
      { PWD, VMUX_DATA_DIR: join(PWD, 'data') },
    );
    expect(code).toBe(0);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      ...{ target: 'web', command: 'x', timeoutMs: 300_000 },
      session: {
        ...{ name: 'web', provider: 'modal', ports: [8000, 9000], egress: true },
        resources: { cpus: 0.5, memoryMiB: 1024, gpu: 'T4' },
        policy: {
          ...{ idleTimeoutMs: 3_600_000, keepMs: 86_400_000, maxRuntimeMs: 28_800_000 },
          ...{ checkpointEveryMs: 900_000, rehydrate: 'never' },
        },
        ...{ labels: { team: 'red' }, env: ['A', 'B', 'C'] },
      },
      bundle: { files: 2, leftOut: [] },
    });
    expect(existsSync(join(PWD, 'data'))).toBe(false);
    await expectRefused(['run', '--rehydrate', 'sometimes', '--', 'x'], {
      ...{ code: 2, says: ['on_demand, immediately, never'], more: { PWD } },
    });
    await expectRefused(['run', '--env-file', 'nowhere', '--', 'x'], {
      ...{ code: 1, says: ['--env-file cannot be read'], more: { PWD } },
    });
  });
});
