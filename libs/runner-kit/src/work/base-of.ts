import { createHash } from 'node:crypto';
import type { Base } from '@vmux/events';
import { SupervisorRefused } from '../errors';
import type { SupervisorFiles } from '../supervisor-files';

/** What a distribution says it consists of, one of them. */
const PACKAGE_LISTS = ['/var/lib/dpkg/status', '/lib/apk/db/installed'] as const;
const MAX_LIST_BYTES = 64 * 1024 * 1024;
const MAX_TEXT_BYTES = 64 * 1024;

/** By the number in the header of a program (ELF, e_machine). */
const machines: Readonly<Record<number, string>> = {
  3: 'x86',
  40: 'arm',
  62: 'x86_64',
  183: 'aarch64',
  243: 'riscv64',
};

/**
 * Finds out what a fresh sandbox is made of, by its own word, before anything runs in it: the same root gives
 * the same answer on every provider.
 */
export async function baseOf(
  files: SupervisorFiles,
  image: string | null,
  signal: AbortSignal,
): Promise<Base> {
  const [release, program] = [
    await readStart(files, '/etc/os-release', MAX_TEXT_BYTES, signal),
    await readStart(files, '/bin/sh', 20, signal),
  ];
  const digest = createHash('sha256').update(release ?? '');
  for (const path of PACKAGE_LISTS) {
    const list = await readStart(files, path, MAX_LIST_BYTES, signal);
    if (list) digest.update(path).update(list);
  }
  return {
    image,
    digest: digest.digest('hex'),
    distribution: distributionOf(release?.toString() ?? ''),
    architecture:
      (program && program.length >= 20 && machines[program.readUInt16LE(18)]) || 'unknown',
  };
}

function distributionOf(release: string): string | null {
  const field = (name: string) =>
    new RegExp(`^${name}="?([A-Za-z0-9._-]{1,31})"?$`, 'm').exec(release)?.[1];
  const id = field('ID');
  const version = field('VERSION_ID');
  return id ? [id, version].filter(Boolean).join('-') : null;
}

async function readStart(
  files: SupervisorFiles,
  path: string,
  length: number,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  try {
    for await (const part of files.read(path, { length, signal })) parts.push(part);
    return Buffer.concat(parts);
  } catch (error) {
    // There is none.
    if (error instanceof SupervisorRefused) return undefined;
    throw error;
  }
}

interface Remembered {
  readonly base: Promise<Base>;
  readonly at: number;
}
const RENEW_AFTER_MS = 10 * 60_000;

/** Sandboxes of the same image are made of the same: not each of them is asked. */
export class Bases {
  private readonly known = new Map<string, Remembered>();

  of(
    provider: string,
    image: string | null,
    look: () => Promise<Base>,
    now: number,
  ): Promise<Base> {
    const key = `${provider}/${image ?? ''}`;
    const found = this.known.get(key);
    if (found && now - found.at < RENEW_AFTER_MS) return found.base;
    const base = look();
    this.known.set(key, { base, at: now });
    base.catch(() => this.known.delete(key));
    return base;
  }
}
