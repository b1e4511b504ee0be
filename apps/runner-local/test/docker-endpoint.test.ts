import { createHash } from 'node:crypto';
import { optionsOf, resolveEndpoint } from '../src/drivers/docker-endpoint';

const resolve = (env: NodeJS.ProcessEnv, files: Readonly<Record<string, unknown>> = {}) =>
  resolveEndpoint({
    env,
    home: '/home/ada',
    exists: (path) => path in files,
    read: (path) => JSON.stringify(files[path]),
  });
const config = '/home/ada/.docker/config.json';
const metaOf = (context: string) =>
  `/home/ada/.docker/contexts/meta/${createHash('sha256').update(context).digest('hex')}/meta.json`;

describe('the Docker endpoint', () => {
  it('is DOCKER_HOST before anything else', () => {
    expect(resolve({ DOCKER_HOST: 'tcp://box:2375', DOCKER_CONTEXT: 'other' })).toEqual({
      host: 'tcp://box:2375',
      source: 'DOCKER_HOST',
    });
  });

  it('is the current context of docker’s configuration', () => {
    const files = {
      [config]: { currentContext: 'desktop' },
      [metaOf('desktop')]: { Endpoints: { docker: { Host: 'unix:///run/desktop.sock' } } },
    };
    expect(resolve({}, files)?.host).toBe('unix:///run/desktop.sock');
  });

  it('is the default socket when the context is the default one', () => {
    const files = { [config]: { currentContext: 'default' }, '/var/run/docker.sock': {} };
    expect(resolve({}, files)?.host).toBe('unix:///var/run/docker.sock');
  });

  it('is nowhere when there is nothing', () => {
    expect(resolve({})).toBeUndefined();
  });

  it('refuses a context that does not exist and says what to do', () => {
    expect(() => resolve({ DOCKER_CONTEXT: 'gone' })).toThrow('docker context use');
  });

  it('refuses a transport that it does not speak', () => {
    expect(() => optionsOf({ host: 'ssh://box', source: 'DOCKER_HOST' })).toThrow('ssh://box');
  });
});
