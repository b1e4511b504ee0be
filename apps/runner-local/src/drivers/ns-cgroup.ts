import { readFileSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, DriverUnavailable } from '@vmux/runner-kit';

/**
 * Freezes a sandbox by its cgroup, of version 2 where there is one: only there can a frozen process be ended.
 * These files are the kernel's own and never wait for a disk: on a busy machine the way to another thread and
 * back takes longer than they do.
 */
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

  /** In a group that was delegated to this user. */
  static below(root: string, parent: string): NsFreezer {
    return new NsFreezer(2, root, parent);
  }

  async isFrozen(name: string): Promise<boolean> {
    const file = this.version === 2 ? 'cgroup.freeze' : 'freezer.state';
    try {
      const text = this.#read(name, file);
      return this.version === 2 ? text.trim() === '1' : /^FR(EEZING|OZEN)/.test(text);
    } catch (fault) {
      if (isMissing(fault)) return false;
      throw fault;
    }
  }

  async set(name: string, frozen: boolean, signal?: AbortSignal): Promise<void> {
    if (this.version === 2) writeFileSync(this.#path(name, 'cgroup.freeze'), frozen ? '1' : '0');
    else writeFileSync(this.#path(name, 'freezer.state'), frozen ? 'FROZEN' : 'THAWED');
    // What is thawed goes on as soon as there is a processor for it: nothing is left to wait for.
    if (!frozen) return;
    for (let attempt = 0; !this.#isSettled(name); attempt++) {
      signal?.throwIfAborted();
      if (attempt === 2000) throw new DriverUnavailable('the sandbox does not freeze');
      if (attempt < 50) await new Promise((resolve) => setImmediate(resolve));
      else await new Promise((resolve) => setTimeout(resolve, attempt < 100 ? 1 : 5));
    }
  }

  #isSettled(name: string): boolean {
    if (this.version === 2) return /^frozen 1$/m.test(this.#read(name, 'cgroup.events'));
    return this.#read(name, 'freezer.state').trim() === 'FROZEN';
  }

  #read(name: string, file: string): string {
    return readFileSync(this.#path(name, file), 'utf8');
  }

  /** Of one sandbox. */
  directoryOf(name: string): string {
    return join(this.mount, this.parent, name);
  }

  #path(name: string, file: string): string {
    return join(this.directoryOf(name), file);
  }
}

export function needFreezer(found: {
  readonly freezer: NsFreezer | undefined;
  readonly whyNoFreezer: string | undefined;
}): NsFreezer {
  if (found.freezer) return found.freezer;
  throw new DriverRefused('unsupported', found.whyNoFreezer ?? 'there is no freezer');
}

const isMissing = (fault: unknown): boolean =>
  ['ENOENT', 'ENODEV'].includes((fault as NodeJS.ErrnoException).code ?? '');
