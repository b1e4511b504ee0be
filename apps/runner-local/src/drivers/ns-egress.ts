import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { isIPv4 } from 'node:net';
import { DriverRefused, DriverUnavailable } from '@vmux/runner-kit';

/** Every sandbox's interface on the host begins like this, and every sandbox's address lies in the pool. */
const PREFIX = 'vmux';
const POOL = '100.127.0.0/16';
const POOL_START = 0x647f_0000;
const POOL_SLOTS = 32_768;
const MAX_PRINTED = 16 * 1024 * 1024;

/** As in native/ns-launcher/src/network.c. */
const FORBIDDEN = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
] as const;

/** What single sandboxes may reach all the same; not replaced with the rest. */
export const ALLOWED = 'VMUX-ALLOWED';

/**
 * From a sandbox: drop what is for this host or for a forbidden network before it is even routed. To a
 * sandbox: answers alone. Chains are replaced whole, in one step.
 */
const RULES = `*raw
:VMUX-GUARD - [0:0]
-A VMUX-GUARD ! -s ${POOL} -j DROP
-A VMUX-GUARD -j ${ALLOWED}
-A VMUX-GUARD -m addrtype --dst-type LOCAL -j DROP
${FORBIDDEN.map((network) => `-A VMUX-GUARD -d ${network} -j DROP`).join('\n')}
COMMIT
*filter
:VMUX-FORWARD - [0:0]
-A VMUX-FORWARD -i ${PREFIX}+ -o ${PREFIX}+ -j DROP
-A VMUX-FORWARD -i ${PREFIX}+ -j ACCEPT
-A VMUX-FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A VMUX-FORWARD -j DROP
COMMIT
`;

const JUMPS: readonly (readonly string[])[] = [
  ['-t', 'raw', 'PREROUTING', '-i', `${PREFIX}+`, '-j', 'VMUX-GUARD'],
  ['-t', 'filter', 'FORWARD', '-i', `${PREFIX}+`, '-j', 'VMUX-FORWARD'],
  ['-t', 'filter', 'FORWARD', '-o', `${PREFIX}+`, '-j', 'VMUX-FORWARD'],
  ['-t', 'nat', 'POSTROUTING', '-s', POOL, '!', '-o', `${PREFIX}+`, '-j', 'MASQUERADE'],
];

/** Those that refer to others first. */
const CHAINS = [
  ['raw', 'VMUX-GUARD'],
  ['raw', ALLOWED],
  ['filter', 'VMUX-FORWARD'],
] as const;

/** Sandboxes have no IPv6 address; should they ever get one, it leads nowhere. */
const JUMP6 = ['-t', 'raw', 'PREROUTING', '-i', `${PREFIX}+`, '-j', 'DROP'] as const;

/** Throws when the host's firewall cannot be put in place; changes nothing. */
export async function canFirewall(): Promise<void> {
  if ((await readFile('/proc/sys/net/ipv4/ip_forward', 'utf8')).trim() !== '1')
    throw new DriverRefused(
      'unsupported',
      'net.ipv4.ip_forward is 0: set it to 1 to give sandboxes a network',
    );
  for (const program of ['iptables', 'iptables-restore']) await must(program, ['--version']);
}

/** Puts the host's firewall in place, or finds it there. Throws, and so no sandbox starts, when it cannot. */
export async function ensureFirewall(): Promise<void> {
  await canFirewall();
  const table = ['-w', '5', '-t', 'raw'];
  // Another one may make it at the same moment: what counts is that it is there.
  if ((await execute('iptables', [...table, '-N', ALLOWED])).code !== 0)
    await must('iptables', [...table, '-n', '-L', ALLOWED]);
  await must('iptables-restore', ['-w', '5', '--noflush'], RULES);
  for (const [table, name, chain, ...rule] of JUMPS)
    await ensureRule('iptables', [table, name, chain].map(String), rule);
  if (await readFile('/proc/net/if_inet6').catch(() => undefined)) {
    const [table, name, chain, ...rule] = JUMP6;
    await ensureRule('ip6tables', [table, name, chain], rule);
  }
}

/** Removes everything that `ensureFirewall` put there; what is gone already is gone. */
export async function removeFirewall(): Promise<void> {
  for (const [table, name, chain, ...rule] of JUMPS)
    await removeRule('iptables', [table, name, chain].map(String), rule);
  if (await readFile('/proc/net/if_inet6').catch(() => undefined)) {
    const [table, name, chain, ...rule] = JUMP6;
    await removeRule('ip6tables', [table, name, chain], rule);
  }
  for (const [table, chain] of CHAINS) {
    const at = ['-w', '5', '-t', table];
    if ((await execute('iptables', [...at, '-n', '-L', chain])).code !== 0) continue;
    await must('iptables', [...at, '-F', chain]);
    await must('iptables', [...at, '-X', chain]);
  }
}

/** As often as it is there. */
async function removeRule(
  program: string,
  [table, name, chain]: readonly string[],
  rule: readonly string[],
): Promise<void> {
  const place = (verb: string) => ['-w', '5', table, name, verb, chain, ...rule].map(String);
  while ((await execute(program, place('-C'))).code === 0) await must(program, place('-D'));
}

async function ensureRule(
  program: string,
  [table, name, chain]: readonly string[],
  rule: readonly string[],
): Promise<void> {
  const place = (verb: string, ...position: string[]) =>
    ['-w', '5', table, name, verb, chain, ...position, ...rule].map(String);
  if ((await execute(program, place('-C'))).code === 0) return;
  await must(program, place('-I', '1'));
}

export async function must(program: string, args: readonly string[], input = ''): Promise<void> {
  const { code, said } = await execute(program, args, input);
  if (code !== 0) throw new DriverUnavailable(`${program}: ${said.trim() || `ended with ${code}`}`);
}

export async function execute(
  program: string,
  args: readonly string[],
  input = '',
): Promise<{ code: number | null; said: string; printed: string }> {
  const env = { PATH: '/usr/sbin:/sbin:/usr/bin:/bin', LANG: 'C' };
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], env });
  let said = '';
  let printed = '';
  child.stdout.on('data', (data) => {
    printed = (printed + data).slice(-MAX_PRINTED);
  });
  child.stderr.on('data', (data) => {
    said = (said + data).slice(-1000);
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  try {
    const [code] = await once(child, 'close');
    return { code, said, printed };
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ENOENT')
      throw new DriverRefused('unsupported', `${program} is missing: install iptables`);
    throw fault;
  }
}

export const interfaceOf = (slot: number): string => `${PREFIX}${slot}`;
export const isSandboxInterface = (name: string): boolean =>
  name.startsWith(PREFIX) && /^\d+$/.test(name.slice(PREFIX.length));
export const interfaceArgument = (slot: number): string => `--interface=${interfaceOf(slot)}`;

/** The launcher's arguments for a sandbox with a network. */
export function networkArguments(slot: number): string[] {
  if (slot >= POOL_SLOTS)
    throw new DriverRefused('unsupported', `all ${POOL_SLOTS} network addresses are in use`);
  return [interfaceArgument(slot), `--address=${POOL_START + slot * 2 + 1}`];
}

/** The host's own name servers where they are public; a private one is out of a sandbox's reach. */
export async function resolverText(fallback: readonly string[]): Promise<string> {
  const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => '');
  const own = [...text.matchAll(/^nameserver\s+(\S+)/gm)].map(([, address]) => String(address));
  const usable = own.filter((address) => isIPv4(address) && !isForbidden(address));
  const chosen = usable.length > 0 ? usable : fallback;
  return chosen.map((address) => `nameserver ${address}\n`).join('');
}

function isForbidden(address: string): boolean {
  const number = numberOf(address);
  return FORBIDDEN.some((network) => {
    const [start = '', bits = '32'] = network.split('/');
    const size = 2 ** (32 - Number(bits));
    return Math.floor(number / size) === Math.floor(numberOf(start) / size);
  });
}

const numberOf = (address: string): number =>
  address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
