import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Rule {
  readonly pattern: RegExp;
  readonly isNegated: boolean;
  readonly isForDirectories: boolean;
}

/** Names what is left out, written as in .gitignore. */
export class IgnoreRules {
  private constructor(private readonly rules: readonly Rule[]) {}

  /** Those of a directory's file; none without one. */
  static in(directory: string, file: string): IgnoreRules {
    try {
      return IgnoreRules.from(readFileSync(join(directory, file), 'utf8'));
    } catch (fault) {
      const { code } = fault as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'EISDIR') return IgnoreRules.from('');
      throw fault;
    }
  }

  static from(text: string): IgnoreRules {
    return new IgnoreRules(text.split('\n').flatMap(rulesOf));
  }

  /**
   * Whether the path, relative to the rules' directory, is left out: by its own name or with a directory
   * above it. The last rule that says something about a name counts.
   */
  leaveOut(path: string): boolean {
    const parts = path.replace(/\/$/, '').split('/');
    const isDirectory = path.endsWith('/');
    return parts.some((_, at) => {
      const isLast = at === parts.length - 1;
      return this.names(parts.slice(0, at + 1).join('/'), !isLast || isDirectory);
    });
  }

  private names(path: string, isDirectory: boolean): boolean {
    const rule = this.rules.findLast(
      ({ pattern, isForDirectories }) => (isDirectory || !isForDirectories) && pattern.test(path),
    );
    return rule !== undefined && !rule.isNegated;
  }
}

function rulesOf(raw: string): Rule[] {
  const line = raw.replace(/\r$/, '').replace(/(?<!\\)\s+$/, '');
  if (line === '' || line.startsWith('#')) return [];
  const isNegated = line.startsWith('!');
  const body = isNegated ? line.slice(1) : line.replace(/^\\([#!])/, '$1');
  const isForDirectories = body.endsWith('/');
  const glob = body.replace(/\/$/, '');
  if (glob === '') return [];
  // A slash before the end ties a pattern to the directory of its file; else it holds at any depth.
  const isTied = glob.includes('/');
  const pattern = `^${isTied ? '' : '(?:.*/)?'}${expressionOf(glob.replace(/^\//, ''))}$`;
  return [{ pattern: new RegExp(pattern, 's'), isNegated, isForDirectories }];
}

const expressionOf = (glob: string): string =>
  glob.replace(
    /\*\*\/|\/\*\*$|\*+|\?|\[!?[^\]/]+\]|\\.|[.+^${}()|[\]\\]/g,
    (found: string): string => {
      if (found === '**/') return '(?:.*/)?';
      if (found === '/**') return '/.*';
      if (found.startsWith('*')) return '[^/]*';
      if (found === '?') return '[^/]';
      if (found.length > 2 && found.startsWith('['))
        return found.replace(/^\[!/, '[^').replaceAll('\\', '\\\\');
      if (found.startsWith('\\')) return `\\${found[1] ?? '\\'}`;
      return `\\${found}`;
    },
  );
