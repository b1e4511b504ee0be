import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { DockerOptions } from 'dockerode';

/** Where the engine is, and who said so. */
export interface DockerEndpoint {
  readonly host: string;
  readonly source: string;
  /** A directory with ca.pem, cert.pem and key.pem. */
  readonly tlsDirectory?: string;
}

export interface EndpointSources {
  readonly env: NodeJS.ProcessEnv;
  readonly home?: string;
  readonly exists?: (path: string) => boolean;
  readonly read?: (path: string) => string;
}

/** Resolves the engine as docker's own CLI does: DOCKER_HOST, DOCKER_CONTEXT, the current context, the usual sockets. */
export function resolveEndpoint(sources: EndpointSources): DockerEndpoint | undefined {
  const {
    env,
    home = homedir(),
    exists = existsSync,
    read = (path) => readFileSync(path, 'utf8'),
  } = sources;
  if (env.DOCKER_HOST) {
    const tlsDirectory = env.DOCKER_TLS_VERIFY
      ? (env.DOCKER_CERT_PATH ?? join(home, '.docker'))
      : undefined;
    return {
      host: env.DOCKER_HOST,
      source: 'DOCKER_HOST',
      ...(tlsDirectory ? { tlsDirectory } : {}),
    };
  }
  const configDirectory = env.DOCKER_CONFIG ?? join(home, '.docker');
  const configFile = join(configDirectory, 'config.json');
  const current = exists(configFile)
    ? fieldOf(parsed(read(configFile), configFile), 'currentContext')
    : undefined;
  const context = env.DOCKER_CONTEXT ?? current;
  if (context && context !== 'default')
    return contextEndpoint(context, configDirectory, exists, read);
  const socket = ['/var/run/docker.sock', join(home, '.docker/run/docker.sock')].find((path) =>
    exists(path),
  );
  return socket ? { host: `unix://${socket}`, source: 'the default socket' } : undefined;
}

function contextEndpoint(
  context: string,
  configDirectory: string,
  exists: (path: string) => boolean,
  read: (path: string) => string,
): DockerEndpoint {
  const id = createHash('sha256').update(context).digest('hex');
  const file = join(configDirectory, 'contexts/meta', id, 'meta.json');
  if (!exists(file)) {
    throw new Error(`docker has no context "${context}": choose another with "docker context use"`);
  }
  const endpoints = objectIn(parsed(read(file), file), 'Endpoints');
  const host = fieldOf(objectIn(endpoints, 'docker'), 'Host');
  if (!host)
    throw new Error(`${file} names no engine: mend the context with "docker context update"`);
  const tlsDirectory = join(configDirectory, 'contexts/tls', id, 'docker');
  return {
    host,
    source: `the context "${context}"`,
    ...(exists(tlsDirectory) ? { tlsDirectory } : {}),
  };
}

export function optionsOf({ host, source, tlsDirectory }: DockerEndpoint): DockerOptions {
  const url = new URL(host);
  if (url.protocol === 'unix:') return { socketPath: url.pathname };
  if (!['tcp:', 'http:', 'https:'].includes(url.protocol)) {
    throw new Error(`${source} names ${host}: unix, tcp, http and https are supported`);
  }
  const address = { host: url.hostname, port: Number(url.port || (tlsDirectory ? 2376 : 2375)) };
  if (!tlsDirectory) return { ...address, protocol: url.protocol === 'https:' ? 'https' : 'http' };
  const file = (name: string) => readFileSync(join(tlsDirectory, name));
  return {
    ...address,
    protocol: 'https',
    ca: file('ca.pem'),
    cert: file('cert.pem'),
    key: file('key.pem'),
  };
}

function parsed(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${file} is not JSON: mend it`, { cause });
  }
}

const objectIn = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;

const fieldOf = (value: unknown, name: string): string | undefined => {
  const field = objectIn(value, name);
  return typeof field === 'string' && field !== '' ? field : undefined;
};
