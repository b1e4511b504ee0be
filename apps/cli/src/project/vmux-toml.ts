import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Failure } from '../failure';
import { type Settings, settingsFrom, type Table } from './settings';

/** What `vmux run NAME` runs. */
export interface Target extends Settings {
  readonly name: string;
}

export interface Project {
  readonly file: string;
  readonly targets: readonly Target[];
  /** Run when no target is named. */
  readonly defaultName: string | null;
}

const fileName = 'vmux.toml';
const maxBytes = 1024 * 1024;
const targetName = /^[a-z0-9][a-z0-9-]{0,51}$/;

/** What the directory's vmux.toml says; null without one. */
export async function projectIn(directory: string): Promise<Project | null> {
  const file = join(directory, fileName);
  const text = textOf(file);
  if (text === null) return null;
  const { TomlError, parse } = await import('smol-toml');
  const wrong = (message: string, path: readonly string[]) =>
    new Failure(`${fileName}:${lineOf(text, path)}: ${message}`, 'see: vmux help run');
  let whole: Table;
  try {
    whole = parse(text);
  } catch (fault) {
    if (!(fault instanceof TomlError)) throw fault;
    const what = fault.message.split('\n', 1)[0]?.replace(/^Invalid TOML document: /, '');
    throw new Failure(`${fileName}:${fault.line}: ${what}`, 'it is not TOML: see https://toml.io');
  }
  const { default: chosen = null, targets = {}, ...shared } = whole;
  if (typeof targets !== 'object' || targets === null || Array.isArray(targets))
    throw wrong('targets must be tables: [targets.NAME]', ['targets']);
  const base = settingsFrom(shared, {}, (message, key) => wrong(message, [key]));
  const named = Object.entries(targets as Table).map(([name, table]): Target => {
    if (!targetName.test(name))
      throw wrong(`"${name}" is not a name: use lower case letters, digits and dashes`, [
        ...['targets', name],
      ]);
    if (typeof table !== 'object' || table === null || Array.isArray(table))
      throw wrong(`targets.${name} must be a table`, ['targets', name]);
    const { command: _, ...inherited } = base;
    const problem = (message: string, key: string) =>
      wrong(`targets.${name}: ${message}`, ['targets', name, key]);
    return { name, ...settingsFrom(table as Table, inherited, problem) };
  });
  if (chosen !== null && !named.some(({ name }) => name === chosen))
    throw wrong(`default names no target: ${JSON.stringify(chosen)}`, ['default']);
  for (const { name, command } of named)
    if (command === undefined) throw wrong(`targets.${name} has no command`, ['targets', name]);
  const own: Target[] = base.command === undefined ? [] : [{ name: 'default', ...base }];
  const defaultName = typeof chosen === 'string' ? chosen : (own[0]?.name ?? null);
  return { file, targets: [...own, ...named], defaultName };
}

function textOf(file: string): string | null {
  try {
    const text = readFileSync(file, 'utf8');
    if (text.length <= maxBytes) return text;
    throw new Failure(`${fileName} is larger than 1 MiB`, 'it is not one of ours: move it away');
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw fault;
  }
}

/** Where a key stands; of what is not found, where the nearest table above it begins. */
function lineOf(text: string, path: readonly string[]): number {
  const wanted = path.join('.');
  let table = '';
  let nearest = 1;
  for (const [index, raw] of text.split('\n').entries()) {
    const header = /^\s*\[\s*([^\]]+?)\s*\]/.exec(raw)?.[1]?.replaceAll(/["'\s]/g, '');
    if (header !== undefined) {
      table = header;
      if (wanted === table) return index + 1;
      if (wanted.startsWith(`${table}.`)) nearest = index + 1;
      continue;
    }
    const key = /^\s*([A-Za-z0-9_."'-]+)\s*=/.exec(raw)?.[1]?.replaceAll(/["']/g, '');
    if (key === undefined) continue;
    const full = table === '' ? key : `${table}.${key}`;
    if (wanted === full || wanted.startsWith(`${full}.`)) return index + 1;
  }
  return nearest;
}
