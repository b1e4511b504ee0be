import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import {
  describeUnless,
  noDockerEngineBecause,
  releaseAll,
  startDockerEngine,
} from '@vmux/testing';

const reason = noDockerEngineBecause();

describeUnless(reason === undefined, reason ?? '')('a Docker engine of a test’s own', () => {
  afterAll(releaseAll);

  it('runs a container and leaves no bridge, mount or control group behind', async () => {
    const bridges = () =>
      readdirSync('/sys/class/net').filter((name) => /^(docker|br-)/.test(name));
    const before = bridges();
    const engine = await startDockerEngine();
    const docker = (...args: string[]) =>
      execFileSync('docker', ['--host', `unix://${engine.socketPath}`, ...args], {
        encoding: 'utf8',
      });
    expect(docker('run', '--rm', engine.image, 'echo', 'hello')).toBe('hello\n');
    docker('run', '--detach', engine.image, 'sleep', '1000');
    const found = tracesOf(engine.socketPath);
    expect(found.groups).not.toEqual([]);
    await engine.stop();
    expect(tracesOf(engine.socketPath)).toEqual({ mounts: [], groups: [] });
    expect(bridges()).toEqual(before);
    expect(existsSync(`/proc/${engine.pid}`)).toBe(false);
  }, 600_000);
});

/** What an engine of this process could leave behind; others run engines of their own meanwhile. */
const tracesOf = (socketPath: string) => ({
  mounts: readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .filter((line) => line.includes(dirname(socketPath))),
  groups: readdirSync('/sys/fs/cgroup', { recursive: true })
    .map(String)
    .filter((name) => name.includes(`vmux-test-${process.pid}-`)),
});
