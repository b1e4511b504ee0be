import { setMaxListeners } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { OrderNamed } from '@vmux/events';
import {
  projectRoot,
  releaseAll,
  releaseLater,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { SupervisorClient } from '../src/index';
import { SetupCache } from '../src/work/setup-cache';
import { detectSetup } from '../src/work/setup-detect';

const { signal } = new AbortController();
setMaxListeners(0, signal);
const keys = ['a', 'b', 'c'].map((letter) => letter.repeat(64)) as [string, string, string];

/** A real supervisor, as an ordinary process: its files are this machine's. */
async function supervised(): Promise<SupervisorClient> {
  const directory = temporaryDirectory('setup');
  const socket = join(directory, 'socket');
  const flags = `--listen=${socket} --spool=${directory}/spool --epoch=1 --instance=abc`;
  await startProcess({
    command: '/bin/sh',
    args: ['-c', `echo up; exec ${projectRoot()}/dist/native/vmux-supervisor run ${flags}`],
    ready: (line) => line === 'up' || undefined,
  });
  await until(() => existsSync(socket));
  const client = await SupervisorClient.connect(connect(socket), { epoch: 1, instance: 'abc' });
  releaseLater(() => client.close());
  return client;
}

function installed(bytes = 1000): string {
  const at = join(temporaryDirectory('installed'), 'node_modules');
  mkdirSync(join(at, 'near'), { recursive: true });
  writeFileSync(join(at, 'near', 'index.js'), 'x'.repeat(bytes), { mode: 0o755 });
  symlinkSync('near/index.js', join(at, 'link'));
  return at;
}

afterEach(releaseAll);

describe('What a set-up installed', () => {
  it('is kept and put back as it was', async () => {
    const { files } = await supervised();
    const directory = temporaryDirectory('cache');
    const at = installed();
    const cache = await SetupCache.at({ directory });
    expect(await cache.restore(keys[0], files, signal)).toBe(false);
    expect(await cache.store(keys[0], [at, `${at}-absent`], files, signal)).toBe(true);
    rmSync(at, { recursive: true });
    const next = await SetupCache.at({ directory });
    expect(await next.restore(keys[1], files, signal)).toBe(false);
    expect(await next.restore(keys[0], files, signal)).toBe(true);
    expect(readFileSync(join(at, 'link'), 'utf8')).toBe('x'.repeat(1000));
    expect(await next.store(keys[0], [at], files, signal)).toBe(false);
  });

  it('is not kept when it is too much, and makes room for what is newer', async () => {
    const { files } = await supervised();
    const directory = temporaryDirectory('cache');
    const settings = { directory, maxEntryBytes: 60_000, maxBytes: 100_000 };
    const cache = await SetupCache.at(settings);
    expect(await cache.store(keys[0], [installed(80_000)], files, signal)).toBe(false);
    expect(readdirSync(directory)).toEqual([]);
    const first = installed(40_000);
    expect(await cache.store(keys[0], [first], files, signal)).toBe(true);
    expect(await cache.store(keys[1], [installed(40_000)], files, signal)).toBe(true);
    // Used last, so that the other one goes.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await cache.restore(keys[0], files, signal)).toBe(true);
    expect(await cache.store(keys[2], [installed(40_000)], files, signal)).toBe(true);
    expect(readdirSync(directory).sort()).toEqual([keys[0], keys[2]]);
  });

  it('is not kept when it is nowhere to be found: the next session installs again', async () => {
    const { files } = await supervised();
    const directory = temporaryDirectory('cache');
    const cache = await SetupCache.at({ directory });
    expect(await cache.store(keys[0], [`${installed()}-elsewhere`], files, signal)).toBe(false);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('is dropped by nobody who makes room while another reads it or writes its own', async () => {
    const { files } = await supervised();
    const directory = temporaryDirectory('cache');
    const cache = await SetupCache.at({ directory, maxBytes: 100_000 });
    const first = installed(40_000);
    expect(await cache.store(keys[0], [first], files, signal)).toBe(true);
    let go: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    const slow = {
      makeDirectory: () => held,
      tarIn: files.tarIn.bind(files),
    } as unknown as typeof files;
    const reading = cache.restore(keys[0], slow, signal);
    const stored = await Promise.all(
      ['b', 'c', 'd', 'e', 'f'].map((letter) =>
        cache.store(letter.repeat(64), [installed(40_000)], files, signal),
      ),
    );
    expect(stored).toEqual([true, true, true, true, true]);
    const kept = readdirSync(directory);
    expect(kept).toContain(keys[0]);
    expect(kept).toHaveLength(2);
    rmSync(first, { recursive: true });
    mkdirSync(first);
    go();
    expect(await reading).toBe(true);
    expect(readFileSync(join(first, 'link'), 'utf8')).toBe('x'.repeat(40_000));
  });

  it('forgets what a killed runner left half done', async () => {
    const directory = temporaryDirectory('cache');
    mkdirSync(join(directory, `${keys[0]}.1.2.new`));
    await SetupCache.at({ directory });
    expect(readdirSync(directory)).toEqual([]);
  });

  it('is shared by nobody but sessions of one owner that would install the same', async () => {
    const { files } = await supervised();
    const workspace = temporaryDirectory('workspace');
    const write = (name: string, text: string) => writeFileSync(join(workspace, name), text);
    const keyFor = async (
      owner: string | undefined,
      bundle: string,
      image: string | null = null,
      env: Readonly<Record<string, string>> = {},
    ) => {
      const spec = { setup: 'auto', bundle };
      const order = { data: { owner, provider: 'ns', image, spec, env } };
      const found = await detectSetup(
        files,
        order as unknown as OrderNamed<'CreateSandbox'>,
        workspace,
        signal,
      );
      return found?.cacheKey;
    };
    write('requirements.txt', 'rich==13.0\n');
    const mine = await keyFor('me', '1');
    expect(mine).toMatch(/^[0-9a-f]{64}$/);
    expect(await keyFor('me', '2')).toBe(mine);
    expect(await keyFor('you', '1')).not.toBe(mine);
    expect(await keyFor('me', '1', 'debian')).not.toBe(mine);
    expect(await keyFor(undefined, '1')).toBeNull();
    expect(await keyFor('me', '1', null, { TOKEN: 'x' })).toBe(mine);
    expect(await keyFor('me', '1', null, { PIP_INDEX_URL: 'https://x/' })).not.toBe(mine);
    write('pip.conf', '[global]\nindex-url = https://elsewhere/\n');
    expect(await keyFor('me', '1')).not.toBe(mine);
    write('requirements.txt', './local.whl\n');
    const local = await keyFor('me', '1');
    expect(await keyFor('me', '2')).not.toBe(local);
  });
});
