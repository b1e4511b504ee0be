import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Offer } from './offers';

/** One thing that was looked at. */
export interface Finding {
  readonly what: string;
  /** `bad` when vmux cannot work so, `limited` when something of it cannot. */
  readonly state: 'good' | 'limited' | 'bad';
  readonly detail: string;
  readonly fix?: string;
}

const askForMs = 10_000;

/** Settings of the kernel that keep users from making namespaces, and what lifts them. */
const barriers: readonly { readonly file: string; readonly shut: string; readonly lift: string }[] =
  [
    {
      file: '/proc/sys/user/max_user_namespaces',
      shut: '0',
      lift: 'sudo sysctl user.max_user_namespaces=15000',
    },
    {
      file: '/proc/sys/kernel/unprivileged_userns_clone',
      shut: '0',
      lift: 'sudo sysctl kernel.unprivileged_userns_clone=1',
    },
    {
      file: '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
      shut: '1',
      lift: 'sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0',
    },
  ];

/**
 * Whether a sandbox can be made here, by what, and what to do where it cannot. The runners of a stack
 * that runs have tried; without one it is guessed from the machine.
 */
export function sandboxes(offers: readonly Offer[]): Finding[] {
  const found = [namespaces(offers), docker(offers)];
  if (found.some(({ state }) => state === 'good')) return found;
  const fixes = found.flatMap(({ fix }) => fix ?? []);
  return [
    ...found,
    {
      ...{ what: 'sandboxes', state: 'bad', detail: 'none can be made on this machine' },
      fix: `one of: ${fixes.join('; ')}; or a server elsewhere: vmux login URL`,
    },
  ];
}

function namespaces(offers: readonly Offer[]): Finding {
  const what = 'sandboxes by namespaces (ns)';
  if (process.platform !== 'linux')
    return { what, state: 'limited', detail: 'need Linux', fix: 'start a Docker engine' };
  const isRoot = process.getuid?.() === 0;
  const offer = offers.find(({ provider }) => provider === 'ns');
  if (offer?.available)
    return {
      what,
      state: 'good',
      detail: isRoot ? 'as root' : 'without root, tried by the runner',
    };
  const reason = offer?.reason ?? 'not tried: no stack runs';
  if (isRoot)
    return offer
      ? { what, state: 'limited', detail: reason, fix: 'see the log: vmux status says where' }
      : { what, state: 'good', detail: 'this is root on Linux' };
  const tried = spawnSync('unshare', ['-U', '-r', '/bin/true'], { timeout: askForMs });
  const mayUser = tried.status === 0;
  const lift = mayUser ? '' : liftOfBarrier();
  const also = mayUser ? 'user namespaces work here' : 'user namespaces are not allowed here';
  return {
    ...{ what, state: 'limited', detail: `not root; ${also}; ${reason}` },
    fix: `${lift ? `${lift}, or ` : ''}run vmux as root`,
  };
}

function liftOfBarrier(): string {
  const shut = barriers.find(
    ({ file, shut: value }) => existsSync(file) && readFileSync(file, 'utf8').trim() === value,
  );
  return shut?.lift ?? '';
}

function docker(offers: readonly Offer[]): Finding {
  const what = 'docker';
  const fix = 'install Docker and start its engine';
  const offer = offers.find(({ provider }) => provider === 'docker');
  if (offer?.available) return { what, state: 'good', detail: 'answers the runner' };
  if (!pathOf('docker')) return { what, state: 'limited', detail: 'not installed', fix };
  const asked = spawnSync('docker', ['version', '--format', '{{.Server.Version}}'], {
    timeout: askForMs,
    encoding: 'utf8',
  });
  if (asked.status === 0) return { what, state: 'good', detail: `answers: ${asked.stdout.trim()}` };
  const detail = asked.stderr.trim().split('\n', 1)[0] || 'does not answer';
  const mayNot = /permission denied/i.test(detail);
  return {
    ...{ what, state: 'limited', detail },
    fix: mayNot ? 'sudo usermod -aG docker $USER, and log in again' : 'start the Docker engine',
  };
}

/** What a session without an image of its own finds: of these, agents and examples make use. */
const expected: readonly { readonly tool: string; readonly fix: string }[] = [
  { tool: 'python3', fix: 'sudo apt-get install python3 python3-venv' },
  { tool: 'uv', fix: 'sudo pip3 install --break-system-packages uv' },
  { tool: 'node', fix: 'a Node.js below /usr or /usr/local' },
  { tool: 'git', fix: 'sudo apt-get install git' },
  { tool: 'curl', fix: 'sudo apt-get install curl' },
];
/** Of this machine, what sandboxes by namespaces see. */
const shared = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
const certificates = '/etc/ssl/certs/ca-certificates.crt';

/** The image of sessions that name none, by the provider that is chosen when nobody names one. */
export function defaultImage(found: readonly Finding[], env: NodeJS.ProcessEnv): Finding {
  const what = 'default image';
  const isRoot = process.getuid?.() === 0;
  const hasDocker = found.some((each) => each.what === 'docker' && each.state === 'good');
  if (!isRoot && hasDocker) {
    const detail = env.VMUX_DOCKER_IMAGE || 'nikolaik/python-nodejs:python3.12-nodejs22';
    return { what, state: 'good', detail };
  }
  const missing = expected.filter(
    ({ tool }) => !shared.some((place) => isProgram(join(place, tool))),
  );
  const fixes = missing.map(({ fix }) => fix);
  if (!existsSync(certificates)) fixes.push('sudo apt-get install ca-certificates');
  const names = [
    ...missing.map(({ tool }) => tool),
    ...(existsSync(certificates) ? [] : ['certificates']),
  ];
  const own = 'this machine’s own programs (/usr)';
  return names.length === 0
    ? { what, state: 'good', detail: `${own}, with python3, uv, node, git, curl, certificates` }
    : {
        what,
        state: 'limited',
        detail: `${own}, without ${names.join(', ')}`,
        fix: fixes.join('; '),
      };
}

export function pathOf(name: string, ...more: readonly string[]): string | null {
  const places = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin', ...more];
  return (
    places
      .filter(Boolean)
      .map((place) => join(place, name))
      .find(isProgram) ?? null
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
