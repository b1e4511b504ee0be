import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type SandboxDriver,
  type SandboxId,
  type SandboxSpec,
  SupervisorClient,
} from '@vmux/runner-kit';
import { releaseLater, whenThisProcessDies } from '@vmux/testing';
import type { NsDriverOptions } from '../src/drivers/ns-driver';

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export interface Inside {
  readonly id: SandboxId;
  readonly client: SupervisorClient;
  /** Runs a shell script as the sandbox's root; both outputs together and how it ended. */
  sh(script: string): Promise<{ text: string; code: number | string }>;
  /** Calls the system by number, as the sandbox's root; "ok" or the errno's name. */
  call(numbers: SystemCall, ...args: (number | string)[]): Promise<string>;
}

export type Group = (title: string, tests: () => void) => void;

/** How the sandbox is made that somebody tries to leave. */
export interface EscapeTarget {
  readonly driver: SandboxDriver;
  readonly options: NsDriverOptions;
  readonly isRootless: boolean;
  readonly hasOneId: boolean;
  /** Who could read what must not be found. */
  readonly canaryOwner: number;
}

/** By architecture: x86-64 and arm64. */
export type SystemCall = readonly [x64: number, arm64: number];

export const enter = (driver: SandboxDriver): Promise<Inside> =>
  enterWith(driver, { egress: false });

export async function enterWith(
  driver: SandboxDriver,
  network: Pick<SandboxSpec, 'egress' | 'allowHosts'>,
): Promise<Inside> {
  const instance = randomBytes(8).toString('hex');
  const id = { sessionId: `escape-${instance.slice(0, 4)}`, epoch: 1, instance };
  const limits = { cpus: 2, memoryMiB: 512, diskMiB: 256, pids: 256 };
  await driver.create({ id, limits, image: null, gpu: null, ...network });
  const client = await SupervisorClient.connect(await driver.openPipe(id), id);

  const exec = async (argv: readonly string[]) => {
    const execId = `e${randomBytes(6).toString('hex')}`;
    await client.start({ execId, argv, env: { PATH, LANG: 'C', HOME: '/root' } });
    let text = '';
    for await (const item of client.read(execId)) {
      if ('data' in item) text += item.data;
      if (item.kind === 'end') {
        const { outcome } = item.exec;
        return { text, code: outcome.kind === 'exited' ? outcome.code : outcome.kind };
      }
    }
    throw new Error('no end');
  };
  return {
    id,
    client,
    sh: (script) => exec(['sh', '-c', script]),
    call: async ([x64, arm64], ...args) => {
      const number = process.arch === 'arm64' ? arm64 : x64;
      // Perl hands a string over by address, and only one that may be written to.
      const texts = args.map((arg, at) => (typeof arg === 'string' ? `$a${at} = "${arg}";` : ''));
      const given = args.map((arg, at) => (typeof arg === 'string' ? `$a${at}` : arg));
      const program = `use Errno; ${texts.join(' ')} $r = syscall(${[number, ...given].join(', ')}); if ($r != -1) { print "ok" } else { for (keys %!) { if ($!{$_}) { print; exit } } }`;
      return (await exec(['perl', '-e', program])).text;
    },
  };
}

/** Places that every Linux has; what else lies at the top of this host must not even be there inside. */
const STANDARD = [
  '',
  'boot',
  'dev',
  'etc',
  'home',
  'media',
  'mnt',
  'opt',
  'root',
  'run',
  'srv',
  'tmp',
  'usr',
  'var',
];
export const CANARY_PLACES: readonly string[] = [
  ...STANDARD.map((name) => `/${name}`),
  '/usr/local',
  '/usr/share',
  '/usr/lib',
  '/var/lib',
  '/var/lib/dpkg',
  '/var/lib/apt',
  '/var/log',
  '/etc/ssl',
  '/etc/apt',
];

export interface Canaries {
  /** In every name. */
  readonly mark: string;
  /** In every content. */
  readonly secret: string;
  readonly paths: readonly string[];
}

/** Files that only their owner may read, one of them not even by its mode; gone at the end. */
export function plantCanaries(places: readonly string[], owner = 0): Canaries {
  const mark = `vmux-canary-${randomBytes(6).toString('hex')}`;
  const secret = `secret-${randomBytes(12).toString('hex')}`;
  const paths = places.flatMap((place) =>
    [0o600, 0o000].map((mode) => {
      const path = join(place, `.${mark}-${mode}`);
      const callOff = whenThisProcessDies('rm -f -- "$0"', path);
      releaseLater(() => {
        rmSync(path, { force: true });
        callOff();
      });
      writeFileSync(path, `${secret}\n`, { mode: 0o600, flag: 'wx' });
      chmodSync(path, mode);
      chownSync(path, owner, owner);
      return path;
    }),
  );
  return { mark, secret, paths };
}

export const REFUSED = /^(EPERM|EACCES|ENOSYS)$/;

export interface TarEntry {
  readonly name: string;
  readonly type?: string;
  readonly link?: string;
  readonly mode?: number;
}

/** An archive of one entry, in the oldest form, said exactly as asked. */
export function tarOf({ name, type = '0', link = '', mode = 0o644 }: TarEntry): Buffer {
  const header = Buffer.alloc(512);
  const octal = (value: number, at: number, size: number) =>
    header.write(`${value.toString(8).padStart(size - 1, '0')}\0`, at, 'latin1');
  header.write(name, 0, 100, 'latin1');
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(0, 124, 12);
  octal(0, 136, 12);
  header.write(' '.repeat(8), 148, 'latin1');
  header.write(type, 156, 'latin1');
  header.write(link, 157, 100, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  octal(1, 329, 8);
  octal(1, 337, 8);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return Buffer.concat([header, Buffer.alloc(1024)]);
}
