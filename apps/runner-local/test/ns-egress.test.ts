import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describeUnless, projectRoot, releaseAll } from '@vmux/testing';
import { resolveHosts } from '../src/drivers/ns-egress-hosts';
import { isRoot, nsOptions } from './ns-target';

const programs = ['ip', 'iptables', 'ip6tables', 'iptables-restore', 'unshare', 'nsenter'];
const missing = programs.filter(
  (name) => !['/usr/sbin', '/sbin', '/usr/bin', '/bin'].some((at) => existsSync(join(at, name))),
);
const reason = isRoot ? `missing: ${missing.join(', ')}` : 'needs root on Linux';

afterAll(releaseAll);

describe('allowHosts', () => {
  it('takes addresses and names that this host knows', async () => {
    expect(await resolveHosts(['10.1.2.3'])).toEqual([{ name: '10.1.2.3', address: '10.1.2.3' }]);
    expect(await resolveHosts(['localhost'])).toContainEqual({
      name: 'localhost',
      address: '127.0.0.1',
    });
  });

  it.each(['a b', '*', '::1', '10.0.0.0/8', 'nowhere.invalid'])('refuses %s', async (name) => {
    await expect(resolveHosts([name])).rejects.toMatchObject({ next: 'refuse', reason: 'invalid' });
  });
});

describeUnless(isRoot && missing.length === 0, reason)('an ns sandbox with egress', () => {
  let found: {
    capabilities: { offered: string[] };
    reached: Record<string, string>;
    v6: string;
    resolver: string;
    links: number[];
    allowed: number[];
    firewall: Record<string, number>;
  };

  beforeAll(async () => {
    const program = join(projectRoot(), 'dist/apps/runner-local/test/ns-egress-host.js');
    const args = ['-n', process.execPath, program, JSON.stringify(nsOptions())];
    const { stdout } = await promisify(execFile)('unshare', args, { timeout: 100_000 });
    found = JSON.parse(stdout);
  }, 120_000);

  it('is offered', () => {
    expect(found.capabilities.offered).toContain('egress');
  });

  it('reaches the public internet and itself', () => {
    expect(found.reached).toMatchObject({
      '203.0.113.2': 'internet',
      '8.8.4.4': 'internet',
      itself: 'two',
    });
  });

  it.each([
    '10.9.9.9',
    '172.20.1.1',
    '192.168.7.7',
    '169.254.169.254',
    '100.100.1.1',
    'the host by its public address',
    'the host by its end of the pair',
    'the host by loopback',
    'another sandbox',
  ])('does not reach %s', (what) => {
    expect(found.reached[what]).toBe('refused');
  });

  it('is not reached from outside', () => {
    expect(found.reached['a sandbox from the internet']).toBe('refused');
  });

  it('has no IPv6 and a name server that it can reach', () => {
    expect(found.v6).toBe('0');
    expect(found.resolver).toMatch(/^(nameserver \d+\.\d+\.\d+\.\d+\n)+$/);
    expect(found.resolver).not.toMatch(/nameserver (10|127|192\.168)\./);
  });

  it('takes its interface with it when it ends', () => {
    expect(found.links).toEqual([3, 0]);
  });

  it('reaches what is allowed by name although it is not public, and nothing beside it', () => {
    expect(found.reached).toMatchObject({
      'a private address that is allowed': 'internet',
      'the host where it is allowed': 'host',
      'a private address beside an allowed one': 'refused',
    });
  });

  it('leaves no allowance to whoever gets its interface next', () => {
    expect(found.allowed).toEqual([2, 0]);
  });

  it.each([
    'while sandboxes use it',
    'after one of several has gone',
    'least while some come and others go',
  ])('has the whole firewall %s', (when) => {
    expect(found.firewall[when]).toBeGreaterThanOrEqual(
      found.firewall['left by a killed runner'] ?? 0,
    );
    expect(found.firewall[when]).toBeGreaterThan(10);
  });

  it.each([
    'after the last has gone',
    'after the next runner has started',
    'after a runner without sandboxes has stopped',
    'after all of them',
  ])('leaves nothing in the host’s firewall %s', (when) => {
    expect(found.firewall[when]).toBe(0);
  });

  it('is something else than a sandbox without egress, which reaches nothing', () => {
    expect(found.reached['the internet from a sandbox without egress']).toBe('refused');
  });
});
