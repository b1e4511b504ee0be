import { spawn, spawnSync } from 'node:child_process';
import { chownSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import {
  type DockerEngine,
  describeUnless,
  noDockerEngineBecause,
  projectRoot,
  releaseAll,
  releaseLater,
  skipUnless,
  startDockerEngine,
  until,
} from '@vmux/testing';
import { Newcomer, nobodySpecial, type OtherUser } from '../support/front-door';

const noEngine = noDockerEngineBecause();
const nowhere = { VMUX_NO_SETUP: '1', DOCKER_HOST: 'unix:///nowhere' };

/** Whether a user without rights can read what is built here. */
function isReadable(): boolean {
  const [program = '', ...args] = nobodySpecial.prefix;
  return spawnSync(program, [...args, 'test', '-x', `${projectRoot()}/vmux`]).status === 0;
}

/** Nobody special, where the kernel lets nobody make namespaces: its limit is that of a namespace of users. */
async function withoutNamespaces(): Promise<OtherUser> {
  const holder = spawn('unshare', ['--user', 'sleep', '600'], { stdio: 'ignore' });
  releaseLater(() => void holder.kill('SIGKILL'));
  const inside = ['nsenter', '-t', String(holder.pid), '--user', '--preserve-credentials', '--'];
  await until(() => {
    for (const kind of ['uid_map', 'gid_map'])
      writeFileSync(`/proc/${holder.pid}/${kind}`, '0 0 65536');
    return true;
  });
  const shut = 'echo 0 > /proc/sys/user/max_user_namespaces';
  const [program = '', ...args] = [...inside, 'sh', '-c', shut];
  expect(spawnSync(program, args, { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  return { ...nobodySpecial, prefix: [...inside, ...nobodySpecial.prefix] };
}

const isRoot = process.getuid?.() === 0;
const because = isRoot ? 'this checkout is not for others to read' : 'becoming others needs root';

describeUnless(isRoot && isReadable(), because)('the provider that nobody named', () => {
  afterAll(releaseAll, 120_000);

  it('is none, and what to do is said, where there is neither an engine nor a namespace', async () => {
    const user = new Newcomer(undefined, nowhere, await withoutNamespaces());
    const run = await user.vmux('run', '--', 'echo', 'hello');
    expect(run).toMatchObject({ code: 1, stdout: '' });
    const [said = ''] = run.stderr.trim().split('\n').slice(-1);
    expect(said).toMatch(
      /^vmux: no sandbox can be made here \(docker: no Docker engine answers.+; ns: .+\)/,
    );
    expect(said).toContain('vmux doctor says what to do');
    const doctor = await user.vmux('doctor', '--json');
    expect(doctor.code).toBe(1);
    const { well, findings } = JSON.parse(doctor.stdout);
    expect(well).toBe(false);
    expect(findings).toContainEqual(
      expect.objectContaining({
        ...{ what: 'sandboxes', state: 'bad' },
        fix: expect.stringContaining('sudo sysctl user.max_user_namespaces='),
      }),
    );
  }, 120_000);

  const mayUser = spawnSync(nobodySpecial.prefix[0] ?? '', [
    ...nobodySpecial.prefix.slice(1),
    ...['unshare', '--user', '--map-root-user', 'true'],
  ]);
  skipUnless(mayUser.status === 0, 'users may not make namespaces here')(
    'is ns without root for a user who has no engine',
    async () => {
      const user = new Newcomer(undefined, nowhere, nobodySpecial);
      const first = await user.vmux('run', '--', 'id -u; echo hello > /tmp/a; cat /tmp/a');
      expect(first).toMatchObject({ code: 0, stdout: '0\nhello\n' });
      expect(first.stderr).toMatch(
        /provider ns: this is not root; docker: no Docker engine answers.*, and \/bin\/true runs in it/,
      );
      const { code, stdout } = await user.vmux('doctor', '--json');
      expect(code).toBe(0);
      expect(JSON.parse(stdout).findings).toContainEqual({
        ...{ what: 'sandboxes by namespaces (ns)', state: 'good' },
        detail: 'without root, tried by the runner',
      });
    },
    120_000,
  );

  skipUnless(noEngine === undefined, noEngine ?? '')(
    'is docker for a user who is not root and whose engine answers',
    async () => {
      const engine: DockerEngine = await startDockerEngine();
      chownSync(engine.socketPath, nobodySpecial.uid, nobodySpecial.uid);
      chownSync(dirname(engine.socketPath), nobodySpecial.uid, nobodySpecial.uid);
      const user = new Newcomer(
        undefined,
        {
          ...{ VMUX_NO_SETUP: '1', DOCKER_HOST: `unix://${engine.socketPath}` },
          VMUX_DOCKER_IMAGE: engine.image,
        },
        nobodySpecial,
      );
      const first = await user.vmux('run', '--', 'id -u; hostname >/dev/null && cat /.dockerenv');
      expect(first).toMatchObject({ code: 0, stdout: '0\n' });
      expect(first.stderr).toContain(
        'provider docker: this is not root; the Docker engine answers, and /bin/true runs in it',
      );
      // Tried once for each start of the stack.
      expect(await user.vmux('run', '--rm', '--', 'echo', 'again')).toEqual({
        ...{ code: 0, stdout: 'again\n', stderr: '' },
      });
      const { code, stdout } = await user.vmux('doctor', '--json');
      expect(code).toBe(0);
      expect(JSON.parse(stdout).findings).toContainEqual({
        ...{ what: 'docker', state: 'good', detail: 'answers the runner' },
      });
    },
    180_000,
  );
});
