import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { releaseAll, releaseLater, skipUnless } from '@vmux/testing';
import type { NsDriver } from '../src/drivers/ns-driver';
import { enterWith, type Inside } from './escape-tools';
import { isRoot, newNsDriver, nsOptions } from './ns-target';

const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';
const environment = `export NODE_EXTRA_CA_CERTS=${CERTIFICATES} PIP_BREAK_SYSTEM_PACKAGES=1;`;

/** Asked before the tests are named, so that one that cannot run says so in its title. */
function whyNot(url: string): string | undefined {
  if (!isRoot) return 'needs root on Linux';
  const ask = `fetch(${JSON.stringify(url)}, { signal: AbortSignal.timeout(10000) }).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))`;
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: CERTIFICATES };
  const { status } = spawnSync(process.execPath, ['-e', ask], { env });
  return status === 0 ? undefined : `${new URL(url).host} cannot be reached from here`;
}

/** Where this machine itself gets its packages from. */
const distribution = firstUrl('cat /etc/apt/sources.list /etc/apt/sources.list.d/*');
const registry = firstUrl('npm config get registry');

function firstUrl(ask: string): URL {
  const said = spawnSync('sh', ['-c', ask]).stdout.toString().replace(/^#.*$/gm, '');
  return new URL(/https?:\/\/[^\s"]+/.exec(said)?.[0] ?? 'http://none.invalid');
}

const noDebian = whyNot(`${distribution.href}/dists/stable/InRelease`);
const noNpm = whyNot(new URL('ms', registry).href);
const isHidden = (rule: string) => !/vmux|100\.127\./i.test(rule);

/** The host's own rules, as they were before. */
function restoreFirewallLater(): void {
  const before = execFileSync('iptables-save').toString();
  if (!before.split('\n').every(isHidden)) return;
  releaseLater(() => {
    const now = execFileSync('iptables-save').toString().split('\n');
    execFileSync('iptables-restore', { input: now.filter(isHidden).join('\n') });
  });
}

/** What a sandbox with a network asks of its host, for as long as the tests take. */
function forward(): void {
  const setting = '/proc/sys/net/ipv4/ip_forward';
  const before = readFileSync(setting, 'utf8');
  writeFileSync(setting, '1');
  releaseLater(() => writeFileSync(setting, before));
}

describe('In an ns sandbox with egress, as the default user', () => {
  let driver: NsDriver;
  let inside: Inside;

  beforeAll(async () => {
    if (!isRoot || (noDebian && noNpm)) return;
    restoreFirewallLater();
    forward();
    driver = newNsDriver({ ...nsOptions(), egress: true });
    const allowHosts = [
      ...(noDebian ? [] : [distribution.hostname]),
      ...(noNpm ? [] : [registry.hostname]),
    ];
    inside = await enterWith(driver, { egress: true, allowHosts });
  }, 60_000);
  afterAll(async () => {
    if (inside) await driver.destroy(inside.id);
    await driver?.close();
    await releaseAll();
  });

  skipUnless(!noDebian, noDebian ?? '')(
    'apt-get installs a package',
    async () => {
      const only = 'find /etc/apt/sources.list.d -type f ! -name debian.sources -delete;';
      const install = 'apt-get install -y --no-install-recommends hello';
      const { text, code } = await inside.sh(`${only} apt-get update && ${install} && hello`);
      expect([code, text]).toEqual([0, expect.stringMatching(/Hello, world!\n$/)]);
    },
    180_000,
  );

  skipUnless(!noNpm, noNpm ?? '')(
    'npm i -g installs a program',
    async () => {
      const { text, code } = await inside.sh(`${environment} npm i -g semver@7 && semver 1.2.3`);
      expect([code, text]).toEqual([0, expect.stringMatching(/1\.2\.3\n$/)]);
    },
    180_000,
  );

  // The Python index is often out of reach: one of the sandbox's own takes its place.
  skipUnless(!noDebian || !noNpm, 'no sandbox: no registry can be reached from here')(
    'pip installs a wheel from an index, and git clones a repository',
    async () => {
      const { text, code } = await inside.sh(`${environment} ${OWN_INDEX}`);
      expect([code, text]).toEqual([0, expect.stringMatching(/installed\ncloned\n$/)]);
    },
    180_000,
  );
});

const OWN_INDEX = `set -e
mkdir -p /srv/index/tiny && cd /srv/index/tiny
python3 - <<'END'
import zipfile
meta = 'tiny-1.0.dist-info/'
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'word = "installed"\\n')
    wheel.writestr(meta + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr(meta + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(meta + 'RECORD', '')
END
echo '<a href="tiny-1.0-py3-none-any.whl">tiny</a>' >index.html
cd /srv/index && (python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &)
pip3 install --retries 10 --index-url http://127.0.0.1:8000/ tiny
git init -q /srv/origin && cd /srv/origin
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m cloned
git clone -q /srv/origin /srv/clone
python3 -c 'import tiny; print(tiny.word)'
git -C /srv/clone log --format=%s`;
