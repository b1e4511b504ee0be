import { createHash, randomBytes } from 'node:crypto';
import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DriverRefused, isPlainName, type SandboxId, type SandboxLimits } from '@vmux/runner-kit';
import type { LentIds } from './ns-user';

/** What the driver keeps about one sandbox, in its own directory, where no sandbox can look. */
export interface NsState {
  readonly version: 1;
  readonly id: SandboxId;
  readonly limits: SandboxLimits;
  readonly slot: number;
  readonly generation: string | null;
  readonly egress: boolean;
  readonly createdAtMs: number;
  /** Where the trees of its base are mounted. */
  readonly trees?: readonly string[];
  readonly image?: string | null;
  /** For one that was made out of a checkpoint: since when its files are the workload's. */
  readonly sinceNs?: string | null;
  readonly restoredFrom?: string | null;
  /** Whose ids its files have, where it was made without root. */
  readonly lent?: LentIds | null;
  /** The delegated control group that its own is below. */
  readonly cgroupRoot?: string | null;
}

/** One range of 65,536 user ids for each sandbox, above what other software hands out. */
const FIRST_UID = 0x1000_0000;
const IDS = 65_536;
const SLOTS = 60_000;
/** A unix socket's address has 108 bytes. */
const MAX_SOCKET_PATH = 107;

/**
 * The driver's directory: `s/<key>` for each sandbox, `slots/<n>` for each id range in use, `base/`,
 * `templates/`, `bin/`. All of it lies outside every sandbox's view.
 */
export class NsStore {
  private constructor(readonly dataDir: string) {}

  static async open(dataDir: string): Promise<NsStore> {
    const socket = join(dataDir, 's', 'x'.repeat(KEY_LENGTH), 'sock');
    if (Buffer.byteLength(socket) > MAX_SOCKET_PATH)
      throw new DriverRefused(
        'invalid',
        `the data directory ${dataDir} is too long for socket addresses: choose a shorter one`,
      );
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
    await chmod(dataDir, 0o700);
    for (const name of ['s', 'new', 'slots', 'base', 'templates', 'bin'])
      await mkdir(join(dataDir, name), { recursive: true, mode: 0o700 });
    return new NsStore(dataDir);
  }

  directoryOf(key: string): string {
    return join(this.dataDir, 's', key);
  }

  /**
   * Appears whole or not at all. A handful of small files, written without leaving this thread: on a busy
   * machine each hop to another takes longer than all of them.
   */
  async add(key: string, state: Omit<NsState, 'slot'>): Promise<NsState> {
    const owner = await ownProcess();
    const draft = join(this.dataDir, 'new', `${randomBytes(6).toString('hex')}~${owner}`);
    mkdirSync(draft, { mode: 0o700 });
    const slot = this.#takeSlot(draft, `${key} ${owner}`);
    try {
      const whole: NsState = { ...state, slot };
      writeFileSync(join(draft, 'state.json'), JSON.stringify(whole), { mode: 0o600 });
      renameSync(draft, this.directoryOf(key));
      return whole;
    } catch (fault) {
      await rm(draft, { recursive: true, force: true });
      await this.freeSlot(slot);
      if (['EEXIST', 'ENOTEMPTY'].includes((fault as NodeJS.ErrnoException).code ?? ''))
        throw new DriverRefused('exists', 'there is such a sandbox already: adopt or destroy it');
      throw fault;
    }
  }

  async read(key: string): Promise<NsState | undefined> {
    const text = readIfThere(join(this.directoryOf(key), 'state.json'));
    if (text === undefined) return undefined;
    const state = JSON.parse(text) as NsState;
    if (state.version !== 1)
      throw new Error(`${this.directoryOf(key)} is of an unknown version ${state.version}`);
    return state;
  }

  async keys(): Promise<string[]> {
    return (await readdir(join(this.dataDir, 's'))).filter((name) => KEY.test(name));
  }

  async freeSlot(slot: number): Promise<void> {
    await rm(join(this.dataDir, 'slots', String(slot)), { force: true });
  }

  /** The process that created the sandbox in that slot. */
  async ownerOf(slot: number): Promise<string> {
    const path = join(this.dataDir, 'slots', String(slot));
    const [, owner] = (await readFile(path, 'utf8').catch(() => '')).split(' ', 2);
    return owner ?? '';
  }

  /** Undoes what a process that was killed left half done. */
  async sweep(): Promise<void> {
    const keys = new Set(await this.keys());
    for (const name of await readdir(join(this.dataDir, 'slots'))) {
      const path = join(this.dataDir, 'slots', name);
      const [key, owner] = (await readFile(path, 'utf8').catch(() => '')).split(' ', 2);
      if (!keys.has(key ?? '') && !(await isAlive(owner ?? ''))) await rm(path, { force: true });
    }
    for (const name of await readdir(join(this.dataDir, 'new')))
      if (!(await isAlive(name.split('~')[1] ?? '')))
        await rm(join(this.dataDir, 'new', name), { recursive: true, force: true });
  }

  /** Linked into place with its content: nobody ever sees an empty one. */
  #takeSlot(draft: string, content: string): number {
    const file = join(draft, 'slot');
    writeFileSync(file, content, { mode: 0o600 });
    const taken = new Set(readdirSync(join(this.dataDir, 'slots')));
    for (let slot = 0; slot < SLOTS; slot++) {
      if (taken.has(String(slot))) continue;
      try {
        linkSync(file, join(this.dataDir, 'slots', String(slot)));
        rmSync(file);
        return slot;
      } catch (fault) {
        if ((fault as NodeJS.ErrnoException).code !== 'EEXIST') throw fault;
      }
    }
    throw new DriverRefused('unsupported', `all ${SLOTS} id ranges are in use`);
  }
}

const KEY_LENGTH = 20;
const KEY = /^[0-9a-f]{20}$/;
/** The name of a sandbox's directory and cgroup: short, whatever the session is called. */
export function keyOf({ sessionId, epoch, instance }: SandboxId): string {
  const sum = createHash('sha256').update(JSON.stringify([sessionId, epoch, instance]));
  return sum.digest('hex').slice(0, KEY_LENGTH);
}

export const cgroupNameOf = (key: string): string => `s-${key}`;
export const uidBaseOf = (slot: number): number => FIRST_UID + slot * IDS;

const HOST_NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

export function checkId({ sessionId, epoch, instance }: SandboxId): void {
  if (!HOST_NAME.test(sessionId))
    throw new DriverRefused('invalid', 'a session id is a host name: a-z, 0-9 and hyphens, ≤ 63');
  if (!Number.isSafeInteger(epoch) || epoch < 0)
    throw new DriverRefused('invalid', 'an epoch is a whole number');
  if (!isPlainName(instance))
    throw new DriverRefused('invalid', 'an instance is 1–64 of A-Za-z0-9._-');
}

/** A process by number and start time, so that a number used again is not taken for it: `pid:ticks:boot`. */
export function ownProcess(): Promise<string> {
  own ??= Promise.all([startTimeOf(process.pid), bootId()]).then(
    ([ticks, boot]) => `${process.pid}:${ticks}:${boot}`,
  );
  return own;
}
let own: Promise<string> | undefined;

export async function isAlive(owner: string): Promise<boolean> {
  const [pid, ticks, boot] = owner.split(':');
  if (!pid || !ticks || boot !== (await bootId())) return false;
  return (await startTimeOf(Number(pid))) === Number(ticks);
}

/** In clock ticks since boot; undefined when there is no such process or only its remains. */
export async function startTimeOf(pid: number): Promise<number | undefined> {
  const stat = readIfThere(`/proc/${pid}/stat`) ?? '';
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.length < 20 || fields[0] === 'Z' || fields[0] === 'X'
    ? undefined
    : Number(fields[19]);
}

/** A small file that is in memory: on a busy machine the way to another thread and back takes longer. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (fault) {
    if (['ENOENT', 'ESRCH'].includes((fault as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw fault;
  }
}

let boot: Promise<string> | undefined;
export function bootId(): Promise<string> {
  boot ??= readFile('/proc/sys/kernel/random/boot_id', 'utf8').then((text) => text.trim());
  return boot;
}
