import { parsed } from '../arguments';
import { UsageError } from '../failure';
import { commandHelp } from '../help';
import { findServer } from '../server';
import { print } from '../terminal/output';

const takesSession = new Set([
  ...[
    'exec',
    'attach',
    'logs',
    'inspect',
    'history',
    'replay',
    'stop',
    'rm',
    'wait',
    'ports',
    'open',
  ],
  ...['forward', 'stats', 'cp', 'suspend', 'resume', 'checkpoint', 'rollback', 'fork', 'move'],
  'rehydrate',
]);

const bash = `_vmux() {
  local words
  words=$(vmux completion --words "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
  [ \${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _vmux vmux ./vmux`;

const zsh = `#compdef vmux
_vmux() {
  local -a found
  found=(\${(f)"$(vmux completion --words "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( \${#found} )); then compadd -- $found; else _files; fi
}
compdef _vmux vmux`;

const fish = `function __vmux_words
  vmux completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c vmux -a '(__vmux_words)'`;

const scripts: Readonly<Record<string, string>> = { bash, zsh, fish };

/** The script for a shell; that script asks us for the words. */
export async function completion(args: readonly string[]): Promise<number> {
  const [first, ...typed] = args;
  if (first === '--words') {
    for (const word of await wordsFor(typed)) await print(word);
    return 0;
  }
  const { positionals } = parsed('completion', args, {});
  const script = scripts[positionals[0] ?? ''];
  if (!script || positionals.length > 1)
    throw new UsageError('vmux completion takes bash, zsh or fish');
  await print(script);
  return 0;
}

async function wordsFor(typed: readonly string[]): Promise<readonly string[]> {
  const names = Object.keys(commandHelp);
  const [command = ''] = typed;
  const last = typed.at(-1) ?? '';
  if (typed.length <= 1) return names;
  if (typed.slice(0, -1).includes('--')) return [];
  if (command === 'help') return names;
  if (last.startsWith('-')) return optionsOf(command);
  return takesSession.has(command) ? sessions() : [];
}

const optionsOf = (command: string): readonly string[] => {
  const known = Object.hasOwn(commandHelp, command) ? commandHelp[command] : undefined;
  return [...new Set(known?.details.match(/(?<=\s)--[a-z][a-z-]*/g) ?? []), '--help'];
};

/** Those that live; none when no server runs. */
async function sessions(): Promise<readonly string[]> {
  const { Sandbox } = await import('@vmux/sdk');
  const found = ['@last'];
  const { vmux } = await findServer();
  for await (const { id } of Sandbox.list({ vmux })) found.push(id);
  return found;
}
