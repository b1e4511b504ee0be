import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, DriverUnavailable } from '@vmux/runner-kit';

/** Freezes a sandbox by its cgroup, of version 2 where there is one: only there can a frozen process be ended. */
export class NsFreezer {
  private constructor(
    private readonly version: 1 | 2,
    private readonly mount: string,
    private readonly parent: string,
  ) {}

  /** Undefined when this machine has no freezer. */
  static async find(parent: string): Promise<NsFreezer | undefined> {
    let v1: string | undefined;
    for (const line of (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')) {
      const [place, kind] = line.split(' - ');
      const mount = place?.split(' ')[4];
      const [type, , options] = kind?.split(' ') ?? [];
      if (!mount) continue;
      if (type === 'cgroup2') return new NsFreezer(2, mount, parent);
      if (type === 'cgroup' && options?.split(',').includes('freezer')) v1 = mount;
    }
    return v1 === undefined ? undefined : new NsFreezer(1, v1, parent);
  }

  async isFrozen(name: string): Promise<boolean> {
    const file = this.version === 2 ? 'cgroup.freeze' : 'freezer.state';
    const text = await readFile(this.#path(name, file), 'utf8').catch(missingIsEmpty);
    return this.version === 2 ? text.trim() === '1' : /^FR(EEZING|OZEN)/.test(text);
  }

  async set(name: string, frozen: boolean, signal?: AbortSignal): Promise<void> {
    if (this.version === 2) await writeFile(this.#path(name, 'cgroup.freeze'), frozen ? '1' : '0');
    else await writeFile(this.#path(name, 'freezer.state'), frozen ? 'FROZEN' : 'THAWED');
    for (let attempt = 0; attempt < 2000; attempt++) {
      signal?.throwIfAborted();
      if ((await this.#settled(name)) === frozen) return;
      await new Promise((resolve) => setTimeout(resolve, attempt < 20 ? 1 : 5));
    }
    throw new DriverUnavailable(`the sandbox does not ${frozen ? 'freeze' : 'thaw'}`);
  }

  async #settled(name: string): Promise<boolean> {
    if (this.version === 2)
      return /^frozen 1$/m.test(await readFile(this.#path(name, 'cgroup.events'), 'utf8'));
    const state = (await readFile(this.#path(name, 'freezer.state'), 'utf8')).trim();
    return state === 'FROZEN' || state === 'FREEZING' ? state === 'FROZEN' : false;
  }

  #path(name: string, file: string): string {
    return join(this.mount, this.parent, name, file);
  }
}

export function needFreezer(freezer: NsFreezer | undefined): NsFreezer {
  if (freezer) return freezer;
  throw new DriverRefused('unsupported', 'this machine has no cgroup freezer');
}

function missingIsEmpty(fault: NodeJS.ErrnoException): string {
  if (fault.code === 'ENOENT' || fault.code === 'ENODEV') return '';
  throw fault;
}
