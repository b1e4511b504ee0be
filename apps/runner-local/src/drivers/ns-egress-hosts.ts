import { lookup } from 'node:dns/promises';
import { isIPv4 } from 'node:net';
import { DriverRefused } from '@vmux/runner-kit';
import { ALLOWED, execute, interfaceOf, must } from './ns-egress';

export interface AllowedHost {
  readonly name: string;
  readonly address: string;
}

const NAME = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$/i;
/** As in native/ns-launcher. */
const MAX_HOSTS = 256;

/** Names as this host knows them: the sandbox's own name server may not, and could be made to say another. */
export async function resolveHosts(names: readonly string[]): Promise<readonly AllowedHost[]> {
  const resolved = await Promise.all(names.map(resolve));
  const hosts = resolved.flat();
  if (hosts.length > MAX_HOSTS)
    throw new DriverRefused('invalid', `allowHosts stands for more than ${MAX_HOSTS} addresses`);
  return hosts;
}

async function resolve(name: string): Promise<AllowedHost[]> {
  if (isIPv4(name)) return [{ name, address: name }];
  if (!NAME.test(name))
    throw new DriverRefused('invalid', `allowHosts takes names and IPv4 addresses, not ${name}`);
  const found = await lookup(name, { all: true, family: 4 }).catch(() => []);
  if (found.length === 0)
    throw new DriverRefused('invalid', `${name} of allowHosts has no IPv4 address here`);
  return found.map(({ address }) => ({ name, address }));
}

/** The launcher's arguments: a line of /etc/hosts and a route for each. */
export const hostArguments = (hosts: readonly AllowedHost[]): string[] =>
  hosts.map(({ name, address }) => `--host=${address}=${name}`);

/** Lets the sandbox in that slot through to these and to nothing that the slot was let through to before. */
export async function allowHostsOf(slot: number, hosts: readonly AllowedHost[]): Promise<void> {
  const table = ['-w', '5', '-t', 'raw'];
  const device = interfaceOf(slot);
  const { code, printed } = await execute('iptables', [...table, '-S', ALLOWED]);
  // Without the chain nobody was ever let through.
  const rules = code === 0 ? printed.split('\n') : [];
  for (const rule of rules)
    if (rule.includes(`-i ${device} `))
      await must('iptables', [...table, ...rule.replace(/^-A/, '-D').trim().split(/\s+/)]);
  for (const { address } of hosts) {
    const allow = ['-i', device, '-d', address, '-j', 'ACCEPT'];
    await must('iptables', [...table, '-A', ALLOWED, ...allow]);
  }
}
