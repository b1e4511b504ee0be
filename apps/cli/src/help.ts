/** Every command: how it is written, what it does, and what more there is to say. */
export const commandHelp: Readonly<Record<string, CommandHelp>> = {
  run: {
    usage: 'vmux run [options] -- command…',
    summary: 'run a command in a new session; starts the stack if none runs',
    details: `
  -d, --detach            print the session's id and leave
  -e, --env NAME=value    set a variable in the session (NAME alone: its value here); repeatable
      --name NAME         first part of the id; the directory's name without it
      --provider NAME     ns, docker
      --image IMAGE       for providers that have images
      --label name=value  repeatable
      --timeout TIME      end the command after 500ms, 30s, 5m, 1h
      --rm                delete the session, logs included, when the command has ended
      --no-bundle         do not send the current directory
      --json              one line of JSON at the end instead of the output

  One argument after -- is a line for the shell, several are run as they are. The session stays when the
  command has ended. Ctrl-C on a terminal detaches and the command goes on; without a terminal, or with
  --rm, INT and TERM end the command.

  The current directory is sent along, up to 100 MiB packed, and the command runs in its copy: in a git work
  tree what git does not ignore, else everything; never .git, node_modules, virtual environments, .env files,
  the home directory or /. What was sent before is not sent again.

  vmux run -- echo hello
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
      --timeout TIME      end it after 500ms, 30s, 5m, 1h
      --json              one line of JSON at the end instead of the output

  vmux exec @last -- ls -la
  vmux exec build-9e55 --timeout 5m -- 'npm ci && npm test'`,
  },
  logs: {
    usage: 'vmux logs [options] SESSION',
    summary: 'output of a session, from any byte, also after its sandbox is gone',
    details: `
  -f, --follow            go on until the session (or the exec) has ended; survives restarts of the server
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
    usage: 'vmux inspect [--json] SESSION',
    summary: 'everything known of a session, as JSON',
    details: `
      --json              on one line`,
  },
  history: {
    usage: 'vmux history [options] SESSION',
    summary: 'every event of a session, from the first',
    details: `
  -f, --follow            go on with what happens
      --from N            start at this revision
      --json              JSON lines`,
  },
  stop: {
    usage: 'vmux stop [options] SESSION…',
    summary: 'end the sandbox; logs and history stay',
    details: `
      --grace TIME        how long its processes have to end by themselves
      --force             do not wait for a runner that cannot be reached
      --no-wait           leave as soon as it is recorded`,
  },
  rm: {
    usage: 'vmux rm [-f] SESSION…',
    summary: 'delete a session with its logs and history',
    details: `
  -f, --force             also while it is live`,
  },
  wait: {
    usage: 'vmux wait [--exec ID] SESSION',
    summary: 'wait for a command (the newest) and end as it did',
    details: '',
  },
  up: {
    usage: 'vmux up [--json]',
    summary: 'start the stack in the background, unless it runs',
    details: `
  The event store, NATS, the session service, the gateway and the local runner, on loopback. Data lies in
  VMUX_DATA_DIR, else ~/.local/share/vmux. VMUX_PORT sets the port, 7878 without it.`,
  },
  down: {
    usage: 'vmux down',
    summary: 'stop the stack; sandboxes go on',
    details: '',
  },
  status: {
    usage: 'vmux status [--json]',
    summary: 'whether a server runs, where, and what it offers',
    details: '',
  },
  version: { usage: 'vmux version', summary: 'the version', details: '' },
  help: { usage: 'vmux help [command]', summary: 'this, or more about a command', details: '' },
};

export interface CommandHelp {
  readonly usage: string;
  readonly summary: string;
  readonly details: string;
}

export function overview(): string {
  const lines = Object.entries(commandHelp).map(
    ([name, { summary }]) => `  ${name.padEnd(9)} ${summary}`,
  );
  return `vmux: sessions that outlive their sandboxes

${lines.join('\n')}

  vmux run -- echo hello            a session, a command in it, its output here
  vmux run -d -- ./train.sh         the same in the background: prints the session's id
  vmux logs -f @last                its output, from the first byte, as it comes
  vmux exec @last -- ls -la         another command in the same session
  vmux history @last                everything that happened to it

SESSION is an id, the beginning of one, or @last. The server is the one of VMUX_URL and VMUX_API_KEY, else
the stack on this machine. run, exec and wait exit with the command's code: 128+n when signal n ended it,
124 when its time was over, 125 when nobody can tell how it ended, 127 when it could not be started.
Otherwise 1 says that vmux could not do it and 2 that the command line is wrong.`;
}

export const helpOf = ({ usage, summary, details }: CommandHelp): string =>
  `${usage}\n\n  ${summary}\n${details}`.trimEnd();
