import { exitCodes, Failure, UsageError } from './failure';

type Run = (args: readonly string[]) => Promise<number>;

/** Loaded when asked for: a command does not wait for the code of the others. */
const commands: Readonly<Record<string, () => Promise<Run>>> = {
  run: async () => (await import('./commands/run.js')).run,
  exec: async () => (await import('./commands/exec.js')).exec,
  attach: async () => (await import('./commands/attach.js')).attach,
  cp: async () => (await import('./commands/cp.js')).cp,
  logs: async () => (await import('./commands/logs.js')).logs,
  ps: async () => (await import('./commands/ps.js')).ps,
  inspect: async () => (await import('./commands/inspect.js')).inspect,
  ports: async () => (await import('./commands/ports.js')).ports,
  open: async () => (await import('./commands/open.js')).open,
  forward: async () => (await import('./commands/forward.js')).forward,
  stats: async () => (await import('./commands/stats.js')).stats,
  history: async () => (await import('./commands/history.js')).history,
  checkpoint: async () => (await import('./commands/checkpoint.js')).checkpoint,
  checkpoints: async () => (await import('./commands/checkpoints.js')).checkpoints,
  rollback: async () => (await import('./commands/rollback.js')).rollback,
  fork: async () => (await import('./commands/fork.js')).fork,
  suspend: async () => (await import('./commands/suspend.js')).suspend,
  resume: async () => (await import('./commands/resume.js')).resume,
  move: async () => (await import('./commands/move.js')).move,
  rehydrate: async () => (await import('./commands/rehydrate.js')).rehydrate,
  replay: async () => (await import('./commands/replay.js')).replay,
  stop: async () => (await import('./commands/stop.js')).stop,
  rm: async () => (await import('./commands/rm.js')).rm,
  wait: async () => (await import('./commands/wait.js')).wait,
  up: async () => (await import('./commands/up.js')).up,
  down: async () => (await import('./commands/down.js')).down,
  status: async () => (await import('./commands/status.js')).status,
  login: async () => (await import('./commands/login.js')).login,
  logout: async () => (await import('./commands/login.js')).logout,
  keys: async () => (await import('./commands/keys.js')).keys,
  completion: async () => (await import('./commands/completion.js')).completion,
  doctor: async () => (await import('./commands/doctor.js')).doctor,
  version: async () => version,
  help: async () => help,
};

const aliases: Readonly<Record<string, string>> = {
  '--version': 'version',
  '-V': 'version',
  '--help': 'help',
  '-h': 'help',
};

async function main(argv: readonly string[]): Promise<number> {
  const [given = 'help', ...args] = argv;
  const name = aliases[given] ?? given;
  const own = args.slice(0, args.includes('--') ? args.indexOf('--') : args.length);
  if (own.includes('--help') || own.includes('-h')) return help([name]);
  return (await load(name))(args);
}

async function load(name: string): Promise<Run> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command) return command();
  const { nearest } = await import('./suggest.js');
  const meant = nearest(name, Object.keys(commands));
  throw new UsageError(
    `there is no command "${name}"${meant ? `: did you mean ${meant}?` : ''}`,
    'see vmux help',
  );
}

async function help([name]: readonly string[]): Promise<number> {
  const { commandHelp, helpOf, overview } = await import('./help.js');
  if (name === undefined || name === 'help') {
    process.stdout.write(`${overview()}\n`);
    return 0;
  }
  await load(name);
  const known = commandHelp[name];
  if (known) process.stdout.write(`${helpOf(known)}\n`);
  return 0;
}

async function version(args: readonly string[]): Promise<number> {
  const { readFileSync } = await import('node:fs');
  const { resolve } = await import('node:path');
  const file = resolve(__dirname, '../../../../package.json');
  const { version: text } = JSON.parse(readFileSync(file, 'utf8')) as { version: string };
  const isJson = args.includes('--json');
  process.stdout.write(isJson ? `${JSON.stringify({ version: text })}\n` : `vmux ${text}\n`);
  return 0;
}

/** One line: what went wrong, and what to do about it. */
async function complain(fault: unknown): Promise<number> {
  const { explained } = await import('./complaint.js');
  process.stderr.write(`vmux: ${explained(fault)}\n`);
  return fault instanceof Failure ? fault.exitCode : exitCodes.failed;
}

main(process.argv.slice(2))
  .catch(complain)
  .then((code) => process.exit(code));
