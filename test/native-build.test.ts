import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { SupervisorClient } from '@vmux/runner-kit';
import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  startDockerEngine,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';

/** The packages that a C compiler is made of, as this machine has them; their files go into an image. */
const TOOLCHAIN =
  /^(gcc|cpp|binutils|libbinutils|libc6-dev|libc-dev-bin|linux-libc-dev|libgcc|libcc1|libisl|libmpc|libmpfr|libgmp|libctf|libgprofng|libjansson|libzstd1|zlib1g|libcrypt-dev|make)(-|$|:|\d)/;
const IMAGE = 'vmux-test:cc';

const whyNot = noDockerEngineBecause() ?? whyNoToolchain();

function whyNoToolchain(): string | undefined {
  const { status } = spawnSync('dpkg-query', ['-W', 'gcc', 'libc6-dev', 'make']);
  return status === 0 ? undefined : 'gcc, libc6-dev and make are not installed as packages';
}

const sh = (script: string, ...args: readonly string[]): string =>
  execFileSync('/bin/sh', ['-ec', script, ...args], { encoding: 'utf8', maxBuffer: 1 << 28 });

describeUnless(whyNot === undefined, whyNot ?? '')('a machine without a C compiler', () => {
  let engine: DockerEngine;
  /** A checkout of what is needed, and a PATH on which there is a client of Docker and no compiler. */
  const checkout = temporaryDirectory('checkout');
  const bin = join(checkout, 'bin');

  beforeAll(async () => {
    engine = await startDockerEngine();
    const host = `unix://${engine.socketPath}`;
    const names = sh('dpkg --get-selections').split('\n');
    const wanted = names.map((line) => line.split('\t')[0] ?? '').filter((n) => TOOLCHAIN.test(n));
    // Containers have no network to fetch packages by.
    sh(
      `docker="$0"; host="$1"; image="$2"; shift 2
      dpkg -L "$@" | grep -v -E '^/usr/share/|^/\\.$|^package diverts' | sort -u >"$SCRATCH/files"
      tar -C / --no-recursion --ignore-failed-read -cf "$SCRATCH/toolchain.tar" -T "$SCRATCH/files" 2>/dev/null || true
      container=$("$docker" --host "$host" create "$image" true)
      "$docker" --host "$host" cp - "$container:/" <"$SCRATCH/toolchain.tar"
      "$docker" --host "$host" commit "$container" ${IMAGE} >/dev/null
      "$docker" --host "$host" rm "$container" >/dev/null`.replaceAll('$SCRATCH', checkout),
      'docker',
      host,
      engine.image,
      ...wanted,
    );
    mkdirSync(bin);
    symlinkSync(sh('command -v docker').trim(), join(bin, 'docker'));
    cpSync(join(projectRoot(), 'native'), join(checkout, 'native'), { recursive: true });
    mkdirSync(join(checkout, 'scripts'));
    cpSync(
      join(projectRoot(), 'scripts/build-native.mjs'),
      join(checkout, 'scripts/build-native.mjs'),
    );
  }, 600_000);
  afterAll(async () => {
    await engine?.stop();
    await releaseAll();
  }, 60_000);

  const build = (env: NodeJS.ProcessEnv = {}) => {
    const program = `import('${checkout}/scripts/build-native.mjs').then((m) => m.buildNative()).catch((e) => { console.error(e.message); process.exit(1) })`;
    return spawnSync(process.execPath, ['-e', program], {
      env: {
        ...{ PATH: bin, HOME: checkout, VMUX_BUILD_IMAGE: IMAGE },
        DOCKER_HOST: `unix://${engine.socketPath}`,
        ...env,
      },
      encoding: 'utf8',
      timeout: 300_000,
    });
  };
  const containers = () =>
    sh('docker --host "$0" ps --all --quiet', `unix://${engine.socketPath}`).trim();

  it('says what it needs where no Docker engine answers either', () => {
    const { status, stderr } = build({ DOCKER_HOST: 'unix:///nowhere' });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(/need a C compiler and make on Linux, or a Docker engine/),
    });
  });

  it('makes its Linux programs in a container, once, and leaves none behind', async () => {
    const made = build();
    expect({ status: made.status, said: made.stderr }).toEqual({
      status: 0,
      said: expect.stringMatching(/^vmux set-up: making .* in a container of .*\n$/),
    });
    const native = join(checkout, 'dist/native');
    expect(readdirSync(native).sort()).toEqual(['.made-of', 'vmux-ns', 'vmux-supervisor']);
    expect(containers()).toBe('');
    const again = build();
    expect([again.status, again.stderr]).toEqual([0, '']);

    const supervisor = join(native, 'vmux-supervisor');
    const version = (file: string) => execFileSync(file, ['--version'], { encoding: 'utf8' });
    expect(version(supervisor)).toBe(version(join(projectRoot(), 'dist/native/vmux-supervisor')));
    const socket = join(checkout, 'socket');
    const flags = `--listen=${socket} --spool=${checkout}/spool --epoch=1 --instance=abc`;
    await startProcess({
      command: '/bin/sh',
      args: ['-c', `echo up; exec ${supervisor} run ${flags}`],
      ready: (line) => line === 'up' || undefined,
    });
    await until(() => existsSync(socket));
    const client = await SupervisorClient.connect(connect(socket), { epoch: 1, instance: 'abc' });
    await client.start({ execId: 'e1', argv: ['/bin/echo', 'made in a container'] });
    let text = '';
    for await (const item of client.read('e1')) if (item.kind === 'stdout') text += item.data;
    client.close();
    expect(text).toBe('made in a container\n');
  }, 400_000);

  it('makes them again when what they are made of changes, and says why it cannot', () => {
    rmSync(join(checkout, 'native/supervisor/src/util.c'));
    const { status, stderr } = build();
    expect([status, stderr]).toEqual([1, expect.stringContaining('does not build')]);
    expect(containers()).toBe('');
    expect(existsSync(join(checkout, 'dist/native/vmux-supervisor'))).toBe(true);
  }, 400_000);
});
