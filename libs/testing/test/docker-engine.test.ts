import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
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
    const before = traces();
    const engine = await startDockerEngine();
    const docker = (...args: string[]) =>
      execFileSync('docker', ['--host', `unix://${engine.socketPath}`, ...args], {
        encoding: 'utf8',
      });
    expect(docker('run', '--rm', engine.image, 'echo', 'hello')).toBe('hello\n');
    docker('run', '--detach', engine.image, 'sleep', '1000');
    await engine.stop();
    expect(traces()).toEqual(before);
    expect(existsSync(`/proc/${engine.pid}`)).toBe(false);
  }, 600_000);
});

/** What an engine could leave behind on the machine. */
const traces = () => ({
  bridges: readdirSync('/sys/class/net').filter((name) => /^(docker|br-|veth)/.test(name)),
  mounts: readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .filter((line) => line.includes('vmux-docker')),
  groups: readdirSync('/sys/fs/cgroup', { recursive: true })
    .map(String)
    .filter((name) => name.includes('vmux-test-') || name.endsWith('/docker')),
});
