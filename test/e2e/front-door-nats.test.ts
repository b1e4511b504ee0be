import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, join } from 'node:path';
import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  skipUnless,
  startDockerEngine,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { Newcomer, nobodySpecial } from '../support/front-door';

const isRoot = process.getuid?.() === 0;
const noEngine = noDockerEngineBecause();
const path = `${process.env.PATH}${delimiter}/usr/sbin`;
const whereIs = (program: string) =>
  path
    .split(delimiter)
    .map((directory) => join(directory, program))
    .find((file) => existsSync(file)) ?? '';
const installed = whereIs('nats-server');

/** Runs the command behind it where this machine's nats-server is no program. */
const withoutNats = [
  ...['unshare', '--mount', 'sh', '-c'],
  'mount --bind /dev/null "$0" && exec "$@"',
  installed,
] as const;

describeUnless(isRoot && installed !== '', 'hiding programs needs root on Linux')(
  'nats-server, where it is not installed',
  () => {
    afterAll(releaseAll, 120_000);

    /** The set-up of a machine that has these programs and no others. */
    const setUp = (data: string, bin: string, more: NodeJS.ProcessEnv, as: readonly string[]) => {
      const script = `import(${JSON.stringify(join(projectRoot(), 'scripts/setup.mjs'))})
        .then(({ ensureNats }) => ensureNats(${JSON.stringify(data)}))`;
      const [program = '', ...args] = [...withoutNats, ...as, process.execPath, '-e', script];
      return spawnSync(program, args, {
        cwd: '/',
        env: { PATH: bin, ...more },
        encoding: 'utf8',
      });
    };
    const machineWith = (...programs: readonly string[]) => {
      const bin = join(temporaryDirectory('machine'), 'bin');
      mkdirSync(bin);
      chmodSync(join(bin, '..'), 0o755);
      for (const program of ['mount', 'unshare', 'sh', 'setpriv', ...programs])
        symlinkSync(whereIs(program), join(bin, program));
      return bin;
    };
    const dataOf = (uid: number) => {
      const data = temporaryDirectory('data');
      chownSync(data, uid, uid);
      return data;
    };
    const hasPackage =
      spawnSync('apt-cache', ['show', 'nats-server']).status === 0 && whereIs('dpkg-deb') !== '';

    skipUnless(hasPackage, 'the distribution has no package of it')(
      'is unpacked from the distribution’s package by a user without rights',
      async () => {
        const data = dataOf(nobodySpecial.uid);
        const bin = machineWith('apt-get', 'dpkg-deb', 'dpkg', 'tar', 'xz');
        const done = setUp(data, bin, {}, nobodySpecial.prefix);
        expect(done).toMatchObject({
          status: 0,
          stderr: `vmux set-up: unpacking the nats-server package into ${data}/programs\n`,
        });
        const version = spawnSync(join(data, 'programs/nats-server'), ['--version']);
        expect(version.stdout.toString()).toMatch(/^nats-server: v2\./);
      },
      120_000,
    );

    it('is Homebrew’s where there are no packages (a stand-in for brew records what it is asked)', () => {
      const bin = machineWith('docker');
      const asked = join(bin, 'asked');
      writeFileSync(join(bin, 'brew'), `#!/bin/sh\necho "$*" > ${asked}\n`, { mode: 0o755 });
      const data = dataOf(0);
      expect(setUp(data, bin, {}, [])).toMatchObject({
        ...{ status: 0, stderr: 'vmux set-up: installing nats-server with brew\n' },
      });
      expect(readFileSync(asked, 'utf8')).toBe('install --quiet nats-server\n');
      expect(existsSync(join(data, 'programs'))).toBe(false);
    });

    it('is missed in words that say what to do, where there is nothing at all', () => {
      const env = { DOCKER_HOST: 'unix:///nowhere' };
      const { status, stderr } = setUp(dataOf(0), machineWith('docker'), env, []);
      expect(status).toBe(1);
      expect(stderr).toContain('nats-server is missing on this machine');
      expect(stderr).toContain('start a Docker engine');
    });

    describeUnless(noEngine === undefined, noEngine ?? '')('with a Docker engine', () => {
      const image = 'vmux-test-nats';
      let engine: DockerEngine;
      let user: Newcomer;
      const docker = (...args: readonly string[]) => {
        const env = { ...process.env, DOCKER_HOST: `unix://${engine.socketPath}` };
        const { status, stdout, stderr } = spawnSync('docker', args, { env, encoding: 'utf8' });
        if (status !== 0) throw new Error(`docker ${args.join(' ')}: ${stderr}`);
        return stdout.trim();
      };

      beforeAll(async () => {
        engine = await startDockerEngine();
        const made = docker('create', engine.image, 'true');
        docker('cp', '--follow-link', installed, `${made}:/nats-server`);
        docker('commit', '--change', 'ENTRYPOINT ["/nats-server"]', made, image);
        docker('rm', made);
        const env = { VMUX_NO_SETUP: '1', DOCKER_HOST: `unix://${engine.socketPath}` };
        // The ports that this engine publishes are on the loopback of its own network.
        const beside = ['nsenter', `--net=/proc/${engine.pid}/ns/net`, '--'];
        user = new Newcomer(undefined, env, { uid: 0, prefix: [...beside, ...withoutNats] });
      }, 180_000);

      it('runs in a container, comes back when that is killed, and goes with the stack', async () => {
        const missing = await user.vmux('up');
        expect(missing).toMatchObject({ code: 1 });
        expect(missing.stderr).toContain('there is no nats-server on this machine: vmux doctor');
        const env = { DOCKER_HOST: `unix://${engine.socketPath}`, VMUX_NATS_IMAGE: image };
        expect(setUp(user.data, machineWith('docker'), env, [])).toMatchObject({
          status: 0,
          stderr: `vmux set-up: nats-server will run in a container of the image ${image}\n`,
        });
        expect(await user.vmux('run', '--provider', 'ns', '--', 'echo', 'hello')).toMatchObject({
          ...{ code: 0, stdout: 'hello\n' },
        });
        const one = docker('ps', '--quiet', '--filter', `ancestor=${image}`);
        expect(one).toMatch(/^[0-9a-f]+$/);
        const [bound] = JSON.parse(docker('inspect', '--format', '{{json .HostConfig}}', one))
          .PortBindings['4222/tcp'];
        expect(bound.HostIp).toBe('127.0.0.1');
        const password = readFileSync(join(user.data, 'secrets/nats-gateway'), 'utf8').trim();
        expect(docker('inspect', one)).not.toContain(password);
        expect(await user.vmux('doctor')).toMatchObject({
          stdout: expect.stringContaining(`nats-server: in a container: ${image}`),
        });

        const nats = user.record().parts.find(({ name }) => name === 'nats-server');
        process.kill(nats?.pid ?? 0, 'SIGKILL');
        await until(
          () => {
            const now = docker('ps', '--quiet', '--filter', `ancestor=${image}`);
            return now !== '' && now !== one;
          },
          { timeoutMs: 60_000, everyMs: 200 },
        );
        expect(await user.vmux('exec', '@last', '--', 'echo', 'again')).toMatchObject({
          ...{ code: 0, stdout: 'again\n' },
        });
        expect(await user.vmux('rm', '--force', '@last')).toMatchObject({ code: 0 });
        expect(await user.vmux('down')).toMatchObject({ code: 0 });
        expect(docker('ps', '--all', '--quiet', '--filter', `ancestor=${image}`)).toBe('');
      }, 180_000);
    });
  },
);
