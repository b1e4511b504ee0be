import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { NsDriver } from '../src/drivers/ns-driver';
import { behindFirewall } from '../src/drivers/ns-firewall';
import { enterWith } from './escape-tools';

/**
 * Runs in a network namespace of its own, which plays the host; another one plays the internet, with private
 * and link-local addresses in it too, so that what is refused is refused and not merely absent. Prints what a
 * sandbox reached.
 */
const [argument] = process.argv.slice(2);
if (!argument) throw new Error('usage: ns-egress-host OPTIONS');

const INTERNET = [
  '203.0.113.2',
  '8.8.4.4',
  '10.9.9.9',
  '172.20.1.1',
  '192.168.7.7',
  '169.254.169.254',
  '100.100.1.1',
];

async function main(options: string): Promise<void> {
  const sh = (script: string) =>
    execFileSync('sh', ['-ec', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
  const server =
    'require("net").createServer((s) => s.end("internet")).listen(80, "::", () => console.log("up"))';
  const internet = spawn('unshare', ['-n', process.execPath, '-e', server], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await new Promise((resolve) => internet.stdout.once('data', resolve));
  const inside = `nsenter -t ${internet.pid} -n`;
  sh(`ip link set lo up
    ip link add up0 type veth peer name in0 netns ${internet.pid}
    ip addr add 203.0.113.1/24 dev up0; ip link set up0 up
    ${inside} ip link set lo up; ${inside} ip link set in0 up
    ${INTERNET.map((address) => `${inside} ip addr add ${address}/${address.startsWith('203') ? 24 : 32} dev in0`).join('\n')}
    ip route add default via 203.0.113.2`);
  const host = createServer((socket) => socket.end('host'));
  await new Promise<void>((resolve) => void host.listen(8080, '0.0.0.0', resolve));

  const driver = new NsDriver({ ...JSON.parse(options), egress: true });
  const capabilities = await driver.capabilities();
  const one = await enterWith(driver, { egress: true });
  const two = await enterWith(driver, { egress: true });
  const cut = await enterWith(driver, { egress: false });
  const allowHosts = ['10.9.9.9', '203.0.113.1'];
  const favoured = await enterWith(driver, { egress: true, allowHosts });
  const all = [one, two, cut, favoured];
  try {
    const listen =
      'use IO::Socket::INET; $s = IO::Socket::INET->new(LocalPort => 7000, Listen => 5); print "up\\n"; $|=1; while ($c = $s->accept) { print $c "two"; close $c }';
    await two.client.start({ execId: 'listen', argv: ['perl', '-e', `$|=1; ${listen}`] });
    const heard = two.client.read('listen');
    await heard.next();
    await heard.return(undefined);
    const addressOf = async (sandbox: typeof one) =>
      /inet (100[\d.]+)/.exec((await sandbox.sh('ip -4 addr show eth0')).text)?.[1] ?? 'none';
    const [mine, theirs] = [await addressOf(one), await addressOf(two)];
    const gateway = mine.replace(/\d+$/, (last) => String(Number(last) - 1));
    const dial = (from: typeof one, address: string, port: number) =>
      from
        .sh(
          `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(PeerAddr => "${address}:${port}", Timeout => 2) or exit 7; print <$s>'`,
        )
        .then(({ text, code }) => (code === 0 ? text : 'refused'));
    const reached: Record<string, string> = {};
    for (const address of INTERNET) reached[address] = await dial(one, address, 80);
    reached['the host by its public address'] = await dial(one, '203.0.113.1', 8080);
    reached['the host by its end of the pair'] = await dial(one, gateway, 8080);
    reached['the host by loopback'] = await dial(one, '127.0.0.1', 8080);
    reached['another sandbox'] = await dial(one, theirs, 7000);
    reached.itself = await dial(two, theirs, 7000);
    reached['the internet from a sandbox without egress'] = await dial(cut, '203.0.113.2', 80);
    reached['a private address that is allowed'] = await dial(favoured, '10.9.9.9', 80);
    reached['the host where it is allowed'] = await dial(favoured, '203.0.113.1', 8080);
    reached['a private address beside an allowed one'] = await dial(favoured, '192.168.7.7', 80);
    const fromInternet = `${inside} timeout 2 perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(PeerAddr => "${theirs}:7000", Timeout => 1) or exit 7; print <$s>' || true`;
    sh(`${inside} ip route add 100.127.0.0/16 via 203.0.113.1`);
    reached['a sandbox from the internet'] = sh(fromInternet).toString() || 'refused';
    const v6 = (await one.sh('ip -6 -o addr show dev eth0 | wc -l')).text.trim();
    const resolver = (await one.sh('cat /etc/resolv.conf')).text;
    const links = () => (readFileSync('/proc/net/dev', 'utf8').match(/vmux\d+/g) ?? []).length;
    const before = links();
    const allowances = () => sh('iptables -t raw -S VMUX-ALLOWED | grep -c ACCEPT || true');
    const allowedBefore = Number(allowances());
    const rules = () => Number(sh('(iptables-save; ip6tables-save) | grep -ci vmux || true'));
    const firewall: Record<string, number> = { 'while sandboxes use it': rules() };
    await driver.destroy(favoured.id);
    const allowed = [allowedBefore, Number(allowances())];
    firewall['after one of several has gone'] = rules();
    await Promise.all(all.map(({ id }) => driver.destroy(id)));
    firewall['after the last has gone'] = rules();
    const linksAfter = links();
    // As a creator that is killed in between leaves it.
    await behindFirewall(async () => undefined);
    firewall['left by a killed runner'] = rules();
    const next = new NsDriver({ ...JSON.parse(options), egress: true });
    await next.list();
    firewall['after the next runner has started'] = rules();
    await behindFirewall(async () => undefined);
    await next.close();
    firewall['after a runner without sandboxes has stopped'] = rules();
    const brief = async () => {
      const { id } = await enterWith(driver, { egress: true });
      const seen = rules();
      await driver.destroy(id);
      return seen;
    };
    const seen = await Promise.all([1, 2, 3, 4, 5].map(brief));
    firewall['least while some come and others go'] = Math.min(...seen);
    firewall['after all of them'] = rules();
    const found = { capabilities, reached, v6, resolver, allowed, firewall };
    const result = { ...found, links: [before, linksAfter] };
    console.log(JSON.stringify(result));
  } finally {
    await Promise.all(all.map(({ id }) => driver.destroy(id)));
    internet.kill('SIGKILL');
    host.close();
  }
}

main(argument).then(
  () => process.exit(0),
  (fault) => {
    console.error(fault);
    process.exit(1);
  },
);
