import { UsageError } from './failure';

const shellName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/**
 * Takes up the directory, variables, functions, aliases and options that the last command of the same
 * shell left behind, and leaves them for the next, whatever the command's end. Each command is an exec of
 * its own, with its own output and exit code.
 */
const script = `
__vmux_state="$HOME/.vmux/shells/$1"; shift
mkdir -p -- "\${__vmux_state%/*}" || exit 125
__vmux_save() {
  local __vmux_code=$? __vmux_name __vmux_text
  trap - EXIT
  {
    printf 'cd -- %q\\n' "$PWD"
    declare -f
    for __vmux_name in $(compgen -v); do
      case $__vmux_name in BASH*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|LINENO|OPTARG|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_|__vmux_*) continue;; esac
      __vmux_text=$(declare -p "$__vmux_name" 2>/dev/null) || continue
      [[ $__vmux_text == "declare -"*([^\\ ])r* ]] || printf '%s\\n' "$__vmux_text"
    done
    alias -p
    shopt -p
    set +o
    printf 'umask %s\\n' "$(umask)"
  } >"$__vmux_state.$$" 2>/dev/null && mv -f -- "$__vmux_state.$$" "$__vmux_state"
  exit "$__vmux_code"
}
shopt -s extglob expand_aliases
[ -f "$__vmux_state" ] && . "$__vmux_state" 2>/dev/null
trap __vmux_save EXIT
if [ "$1" = line ]; then shift; eval "$1"; else shift; "$@"; fi
`;

/** A command of a shell that remembers. */
export function inShell(name: string, command: string | readonly string[]): readonly string[] {
  if (!shellName.test(name))
    throw new UsageError(`"${name}" is not a name for a shell`, 'use letters, digits and dashes');
  const rest = typeof command === 'string' ? ['line', command] : ['argv', ...command];
  return ['bash', '-c', script, 'vmux', name, ...rest];
}
