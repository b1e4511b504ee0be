import { readFile } from 'node:fs/promises';
import { DriverUnavailable } from '@vmux/runner-kit';
import type Docker from 'dockerode';
import { archiveOf } from './docker-archive';
import { OURS, RUNNER_LABEL } from './docker-container';
import type { AllowedHost } from './ns-egress-hosts';

const GUARD = `/${OURS}/guard`;
/** An engine that is busy takes seconds; one that hangs must not hold up a sandbox for ever. */
const HELPED_WITHIN_MS = 60_000;
const REMOVED_WITHIN_MS = 15_000;
/** A creation that is under way is younger. */
const ABANDONED_AFTER_MS = 10 * 60_000;
const NAME_SERVERS = ['1.1.1.1', '9.9.9.9'];

/** What a container's own settings say of its network. */
export const networkOptions = (network: string, allowed: readonly AllowedHost[]) => ({
  NetworkMode: network,
  Dns: NAME_SERVERS,
  ExtraHosts: allowed.map(({ name, address }) => `${name}:${address}`),
  Sysctls: { 'net.ipv6.conf.all.disable_ipv6': '1', 'net.ipv6.conf.default.disable_ipv6': '1' },
});

/** What was let through when the container was made. */
export const hostsFrom = (extraHosts: readonly string[] | undefined | null): AllowedHost[] =>
  (extraHosts ?? []).map((text) => {
    const at = text.lastIndexOf(':');
    return { name: text.slice(0, at), address: text.slice(at + 1) };
  });

/**
 * A network for each container, out of which the public internet is reached and nothing else. The refusals
 * are routes in the container's own network, which nothing inside may change; they are set by a helper
 * that shares it, so that it does not matter where the engine runs. The helper runs our program alone,
 * whatever its image holds.
 */
export class DockerEgress {
  constructor(
    private readonly docker: Docker,
    /** `vmux-ns`, static. */
    private readonly guardFile: string,
    private readonly helpedWithinMs = HELPED_WITHIN_MS,
  ) {}

  async createNetwork(name: string, labels: Readonly<Record<string, string>>): Promise<void> {
    await this.docker.createNetwork({
      Name: name,
      Driver: 'bridge',
      CheckDuplicate: true,
      EnableIPv6: false,
      Labels: { ...labels },
    });
  }

  async removeNetwork(name: string): Promise<void> {
    await this.docker
      .getNetwork(name)
      .remove()
      .catch((error) => {
        if (error.statusCode !== 404) throw error;
      });
  }

  /** Networks whose container was never made, or went without them: their creator was killed. */
  async sweepNetworks(runnerId: string, olderThanMs = ABANDONED_AFTER_MS): Promise<void> {
    const filters = { label: [`${RUNNER_LABEL}=${runnerId}`] };
    const networks = await this.docker.listNetworks({ filters: JSON.stringify(filters) });
    const containers = await this.docker.listContainers({ all: true, filters });
    const names = new Set(containers.flatMap(({ Names }) => Names.map((name) => name.slice(1))));
    const limit = Date.now() - olderThanMs;
    for (const { Name, Created } of networks)
      if (!names.has(Name) && Date.parse(Created ?? '') < limit) await this.removeNetwork(Name);
  }

  /** Before anything runs in it. */
  async guard(container: string, image: string, allowed: readonly AllowedHost[]): Promise<void> {
    const own = await this.addresses(image);
    await this.help(
      image,
      `container:${container}`,
      ['NET_ADMIN'],
      [
        'guard',
        ...own.map((address) => `--block=${address}`),
        ...allowed.map(({ name, address }) => `--host=${address}=${name}`),
      ],
    );
  }

  /** Those of the machine that the engine runs on. */
  private async addresses(image: string): Promise<readonly string[]> {
    const printed = await this.help(image, 'host', [], ['addresses']);
    return printed.split('\n').filter((line) => /^\d+\.\d+\.\d+\.\d+$/.test(line));
  }

  private async help(
    image: string,
    network: string,
    capabilities: readonly string[],
    args: readonly string[],
  ): Promise<string> {
    const helper = await this.docker.createContainer({
      Image: image,
      Entrypoint: [GUARD],
      Cmd: [...args],
      User: '0:0',
      Tty: true,
      Healthcheck: { Test: ['NONE'] },
      HostConfig: {
        NetworkMode: network,
        CapDrop: ['ALL'],
        CapAdd: [...capabilities],
        SecurityOpt: ['no-new-privileges:true'],
        ReadonlyRootfs: false,
      },
    });
    const helping = this.run(helper);
    // Whatever comes of it after the time is up is nobody's.
    helping.catch(() => undefined);
    try {
      return await within(this.helpedWithinMs, helping);
    } finally {
      await within(REMOVED_WITHIN_MS, helper.remove({ force: true }));
    }
  }

  private async run(helper: Docker.Container): Promise<string> {
    const content = await readFile(this.guardFile);
    const files = archiveOf([
      { path: `${OURS}/`, mode: 0o700 },
      { path: GUARD.slice(1), mode: 0o555, content },
    ]);
    await helper.putArchive(files, { path: '/' });
    const output = await helper.attach({ stream: true, stdout: true, stderr: true });
    let printed = '';
    output.on('data', (data) => {
      printed = (printed + data).slice(-65_536);
    });
    const ended = new Promise((resolve) => output.once('close', resolve).once('end', resolve));
    await helper.start();
    const { StatusCode } = await helper.wait();
    await ended;
    if (StatusCode !== 0)
      throw new DriverUnavailable(`a network cannot be guarded: ${printed.trim()}`);
    return printed.replaceAll('\r', '');
  }
}

function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const late = () =>
      reject(new DriverUnavailable(`the engine did not guard a network within ${ms / 1000} s`));
    const timer = setTimeout(late, ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
