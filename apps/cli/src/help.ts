import type { CommandHelp } from './help-entry';
import { reachingHelp } from './help-reaching';
import { serverHelp } from './help-server';

/** Every command: how it is written, what it does, and what more there is to say. */
export const commandHelp: Readonly<Record<string, CommandHelp>> = {
  run: {
    usage: 'vmux run [options] -- command…   or   vmux run [options] [TARGET]',
    summary: 'run a command in a new session; starts the stack if none runs',
    details: `
  -d, --detach            print the session's id and leave
  -p, --port PORT         a port that the command will serve: its URL is printed; repeatable
      --public            everyone who has the URL may look; else it carries a token
      --wake              with --public: a visit wakes the session
  -e, --env NAME=value    set a variable in the session (NAME alone: its value here); repeatable
      --env-file FILE     variables, one NAME=value a line; repeatable
      --name NAME         first part of the id; the target's or the directory's name without it
      --provider NAME     ns, docker
      --gpu NAME          such as T4, for providers that have them
      --image IMAGE       for providers that have images
      --cpus N            such as 0.5
      --memory SIZE       such as 512M or 2G
      --label name=value  repeatable
      --timeout TIME      end the command after 500ms, 30s, 5m, 1h
      --idle-timeout TIME suspend the session when nothing happened for so long
      --keep TIME         keep the sandbox for so long, whatever happens (up to 168h)
      --max-runtime TIME  stop the session then, after a warning
      --checkpoint-every TIME  keep its files by itself, from 10s on
      --rehydrate WHEN    after its sandbox was lost: on_demand (with the next command or visitor; so without it),
                          immediately, or never
      --egress            let the session reach the network
      --setup WHAT        auto (install what package.json, requirements.txt … ask for; so with --egress), none,
                          or a line for the shell that is run before the command
  -i, --stdin             give the command our input, to its end
  -t, --tty               give it this terminal; leave with Ctrl-P Ctrl-Q, come back with vmux attach --exec
      --rm                delete the session, logs included, when the command has ended
      --no-bundle         do not send the current directory
      --dry-run           say what would be run and sent and whether the provider has it, and do nothing
      --json              one line of JSON at the end instead of the output; with -p one at the beginning too,
                          with url and localUrl (with -d that is the only one)

  One argument after -- is a line for the shell, several are run as they are. The session stays when the
  command has ended. Ctrl-C on a terminal detaches and the command goes on; without a terminal, or with
  --rm, INT and TERM end the command.

  The current directory is sent along, up to 100 MiB packed, and the command runs in its copy: in a git work
  tree what git does not ignore, else everything; never what .vmuxignore names, .git, node_modules, virtual
  environments, .env files, the home directory or /. What was sent before is not sent again.

  A TARGET stands in vmux.toml; without one, the default is run:

    default = "web"
    [targets.web]
    command = "python3 -m http.server 8000"     # or a list
    ports = [8000]
    env = { NAME = "value" }
    setup = "none"                              # auto, or a line for the shell
    # also: provider, gpu, image, cpus, memory, timeout, idle-timeout, keep, egress,
    #       max-runtime, checkpoint-every, rehydrate

  vmux run -- echo hello
  vmux run -p 8000 -- python3 -m http.server 8000
  vmux run --name build -e CI=1 -- 'make && make test'
  vmux run -d -- sleep 1000`,
  },
  exec: {
    usage: 'vmux exec [options] SESSION -- command…',
    summary: 'run a command in a session',
    details: `
  -d, --detach            print the exec's id and leave
  -e, --env NAME=value    set a variable; repeatable
  -w, --cwd DIRECTORY     where it runs
  -u, --user USER         as whom
  -t, --tty               give it this terminal; leave with Ctrl-P Ctrl-Q, come back with vmux attach --exec
      --create            make the session when there is none of that name
      --shell NAME        keep directory, variables, functions and aliases for the next exec with that name
  -n, --no-stdin          give it no input; else it gets ours, to its end
      --timeout TIME      end it after 500ms, 30s, 5m, 1h
      --json              one line of JSON at the end instead of the output

  vmux exec @last -- ls -la
  vmux exec @last --shell work -- 'cd /tmp && export A=1'
  vmux exec @last --shell work -- 'echo $PWD $A'
  vmux exec build-9e55 --timeout 5m -- 'npm ci && npm test'
  tar c . | vmux exec @last -- tar x -C /tmp`,
  },
  ...reachingHelp,
  logs: {
    usage: 'vmux logs [options] SESSION',
    summary: 'output of a session, from any byte, also after its sandbox is gone',
    details: `
  -f, --follow            go on until the session (or the exec) has ended; survives restarts of the server
  -n, --tail N            start with the last N lines
      --since TIME        start with what was written in the last 5m, or since 2026-05-01T12:00:00Z
      --offset N          start at this byte
      --exec ID           only what this exec wrote
      --stream NAME       stdout, stderr or pty of the exec, without what else it wrote
      --raw               to a terminal too: every byte, not only text and colours
      --json              JSON lines {kind, exec, stream, offset, at, b64}

  vmux logs -f @last
  vmux logs build-9e55 --offset 1048576 > rest.log`,
  },
  ps: {
    usage: 'vmux ps [-a] [--json]',
    summary: 'sessions, the newest first',
    details: `
  -a, --all               those that have ended too
      --json              a JSON array`,
  },
  inspect: {
    usage: 'vmux inspect [--json] [--tree] SESSION',
    summary: 'everything known of a session, as JSON; or the tree of its forks',
    details: `
      --json              on one line
      --tree              the session that it was forked from, and all that were forked since`,
  },
  history: {
    usage: 'vmux history [options] SESSION',
    summary: 'every event of a session, from the first',
    details: `
  -f, --follow            go on with what happens
      --from N            start at this revision
      --json              JSON lines`,
  },
  checkpoint: {
    usage: 'vmux checkpoint [options] SESSION',
    summary: 'keep the files of a session as they are now',
    details: `
      --name NAME         to find it by
      --no-wait           leave as soon as it is recorded
      --json              what is known of it

  Prints the checkpoint's id. Processes go on; what they hold in memory is not kept.

  vmux checkpoint @last --name before-upgrade
  vmux rollback @last before-upgrade`,
  },
  checkpoints: {
    usage: 'vmux checkpoints [--json] SESSION',
    summary: 'checkpoints of a session, the oldest first',
    details: `
      --json              a JSON array

  SIZE is what all its files take, NEW what the checkpoint added to the store. A portable one restores on any
  provider; the provider that is named beside it has a fast form of its own.`,
  },
  rollback: {
    usage: 'vmux rollback [options] SESSION CHECKPOINT',
    summary: 'go back to a checkpoint, in a new sandbox',
    details: `
      --allow-base-change also onto another base than it was taken on
      --no-wait           leave as soon as it is recorded
      --json              one line of JSON

  CHECKPOINT is an id, a name, or @last. Commands that run end as unknown; declared services start again.

  vmux rollback build-9e55 before-upgrade`,
  },
  fork: {
    usage: 'vmux fork [options] SESSION',
    summary: 'new sessions with the files of this one, which goes on untouched',
    details: `
      --checkpoint C      from this checkpoint (id, name or @last); a new one is taken without it
      --at N              from the last checkpoint before this revision of its history
      --count N           how many, 1 to 100
      --name NAME         first part of their ids; this one's without it
      --provider NAME     where they run
      --json              one line of JSON

  Prints the ids of the new sessions, one per line.

  vmux fork @last --count 4
  vmux fork build-9e55 --checkpoint before-upgrade --name retry`,
  },
  suspend: {
    usage: 'vmux suspend [--no-wait] [--json] SESSION…',
    summary: 'freeze a session: memory and processes stay, no processor is used',
    details: `
      --no-wait           leave as soon as it is recorded
      --json              one line of JSON for each

  The next command wakes it.`,
  },
  resume: {
    usage: 'vmux resume [--no-wait] [--json] SESSION…',
    summary: 'wake a session that is suspended, released or lost',
    details: `
      --no-wait           leave as soon as it is recorded
      --json              one line of JSON for each

  A move that still waits for its sandbox, such as one with a GPU, is given up.`,
  },
  move: {
    usage: 'vmux move --to PROVIDER [options] SESSION',
    summary: 'move a session to another provider, under the same id',
    details: `
      --to PROVIDER       ns, docker
      --allow-base-change also when the base there is another one
      --no-wait           leave as soon as it is recorded
      --json              one line of JSON

  Files, logs, history, URLs and id stay. Commands that run end as unknown (moved); declared services start
  again. When it fails the session goes on where it is.

  vmux move @last --to docker --allow-base-change`,
  },
  rehydrate: {
    usage: 'vmux rehydrate [options] SESSION',
    summary: 'give a session that lost its sandbox a new one, from its last checkpoint',
    details: `
      --checkpoint C      from this one (id, name or @last)
      --provider NAME     there, instead of where it was
      --replay            run again what ran since the checkpoint, in order, as long as each ends as it did
      --force             give up a sandbox that cannot be reached
      --allow-base-change also onto another base
      --no-wait           leave as soon as it is recorded
      --json              one line of JSON

  vmux rehydrate build-9e55 --replay`,
  },
  stop: {
    usage: 'vmux stop [options] SESSION…',
    summary: 'end the sandbox; logs and history stay',
    details: `
      --grace TIME        how long its processes have to end by themselves
      --force             do not wait for a runner that cannot be reached
      --no-wait           leave as soon as it is recorded
      --json              JSON lines`,
  },
  rm: {
    usage: 'vmux rm [-f] SESSION…',
    summary: 'delete a session with its logs and history',
    details: `
  -f, --force             also while it is live
      --json              JSON lines`,
  },
  wait: {
    usage: 'vmux wait [--exec ID] [--json] SESSION',
    summary: 'wait for a command (the newest) and end as it did',
    details: '',
  },
  ...serverHelp,
  version: { usage: 'vmux version [--json]', summary: 'the version', details: '' },
  help: { usage: 'vmux help [command]', summary: 'this, or more about a command', details: '' },
};

export function overview(): string {
  const lines = Object.entries(commandHelp).map(
    ([name, { summary }]) => `  ${name.padEnd(11)} ${summary}`,
  );
  return `vmux: sessions that outlive their sandboxes

${lines.join('\n')}

  vmux run -- echo hello            a session, a command in it, its output here
  vmux run -d -- ./train.sh         the same in the background: prints the session's id
  vmux run -p 8000 -- python3 -m http.server 8000     with a URL for its port
  vmux attach @last                 its shell in this terminal
  vmux logs -f @last                its output, from the first byte, as it comes
  vmux exec @last -- ls -la         another command in the same session
  vmux history @last                everything that happened to it

SESSION is an id, the beginning of one, or @last. The server is the one of VMUX_URL and VMUX_API_KEY, the
one of vmux login, else the stack on this machine. run, exec and wait exit with the command's code: 128+n when signal n ended it,
124 when its time was over, 125 when nobody can tell how it ended, 127 when it could not be started.
Otherwise 1 says that vmux could not do it and 2 that the command line is wrong.`;
}

export const helpOf = ({ usage, summary, details }: CommandHelp): string =>
  `${usage}\n\n  ${summary}\n${details}`.trimEnd();
