import { type ParseArgsConfig, parseArgs } from 'node:util';
import { UsageError } from './failure';
import { mebibytes, milliseconds } from './project/settings';
import { nearest } from './suggest';

export type OptionTable = NonNullable<ParseArgsConfig['options']>;

export interface Parsed {
  readonly positionals: readonly string[];
  /** What stands after `--`; null without it. */
  readonly command: readonly string[] | null;
  has(name: string): boolean;
  text(name: string): string | undefined;
  texts(name: string): readonly string[];
  /** A whole number from 0 on. */
  number(name: string): number | undefined;
  /** In milliseconds, from `500ms`, `30s`, `5m`, `1h`. */
  duration(name: string): number | undefined;
  /** In mebibytes, from `512M`, `2G`. */
  size(name: string): number | undefined;
  /** A number greater than 0, such as `0.5`. */
  amount(name: string): number | undefined;
}

/** The arguments of one command: options, names, and after `--` a command line that is not ours to read. */
export function parsed(command: string, args: readonly string[], options: OptionTable): Parsed {
  const at = args.indexOf('--');
  const own = at < 0 ? args : args.slice(0, at);
  const { values, positionals } = parse(command, own, options);
  const text = (name: string) => {
    const value = values[name];
    return typeof value === 'string' ? value : undefined;
  };
  return {
    positionals,
    command: at < 0 ? null : args.slice(at + 1),
    has: (name) => values[name] === true,
    text,
    texts: (name) => (Array.isArray(values[name]) ? values[name].map(String) : []),
    number: (name) => convert(name, text(name), wholeNumber, 'a whole number from 0 on'),
    duration: (name) => convert(name, text(name), milliseconds, 'a time such as 500ms, 30s or 5m'),
    size: (name) => convert(name, text(name), mebibytes, 'a size such as 512M or 2G'),
    amount: (name) => convert(name, text(name), positive, 'a number such as 0.5 or 2'),
  };
}

function parse(command: string, args: readonly string[], options: OptionTable) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (fault) {
    const { code, message } = fault as NodeJS.ErrnoException;
    if (!code?.startsWith('ERR_PARSE_ARGS')) throw fault;
    throw new UsageError(explained(message, options), `see vmux help ${command}`);
  }
}

function explained(message: string, options: OptionTable): string {
  const [, unknown] = /^Unknown option '(-{1,2}[^']*)'/.exec(message) ?? [];
  if (unknown === undefined) return message.split('\n', 1)[0] ?? message;
  const meant = nearest(unknown.replace(/^-+/, ''), Object.keys(options));
  return `there is no option ${unknown}${meant ? `: did you mean --${meant}?` : ''}`;
}

function convert(
  name: string,
  text: string | undefined,
  conversion: (text: string) => number | null,
  what: string,
): number | undefined {
  if (text === undefined) return undefined;
  const value = conversion(text);
  if (value === null) throw new UsageError(`--${name} takes ${what}, not "${text}"`);
  return value;
}

const wholeNumber = (text: string): number | null =>
  /^\d{1,15}$/.test(text) ? Number(text) : null;

const positive = (text: string): number | null =>
  /^\d{1,6}(\.\d{1,3})?$/.test(text) && Number(text) > 0 ? Number(text) : null;

/** One argument is a line for the shell, several are run as they are. */
export function commandOf({ command }: Parsed, usage: string): string | readonly string[] {
  const [first] = command ?? [];
  if (!command || first === undefined || first === '')
    throw new UsageError('there is no command to run', `put it after --, as in: ${usage}`);
  return command.length === 1 ? first : command;
}

/** The one session that a command is about. */
export function onlyName({ positionals }: Parsed, command: string): string {
  const [name] = positionals;
  if (name === undefined || positionals.length > 1)
    throw new UsageError(
      `vmux ${command} takes one session, not ${positionals.length}`,
      'name it by its id, the beginning of its id, or @last',
    );
  return name;
}

/** Refuses what a command would otherwise silently ignore. */
export function noNames({ positionals }: Parsed, command: string): void {
  const [extra] = positionals;
  if (extra !== undefined)
    throw new UsageError(`vmux ${command} does not take "${extra}"`, `see vmux help ${command}`);
}
