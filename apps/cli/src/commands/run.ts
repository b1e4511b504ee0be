import { type CreateOptions, Sandbox, type Vmux, VmuxError } from '@vmux/sdk';
import { parsed } from '../arguments';
import { type Bundle, bundleOf } from '../bundle/bundle';
import { exitCodes, Failure, UsageError } from '../failure';
import { offsetOfLastLines } from '../log-place';
import { checkProvider, labelled } from '../offers';
import { chosenProvider } from '../provider-choice';
import { findServer, rememberLast } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print, say, whisper } from '../terminal/output';
import { StatusLine } from '../terminal/status-line';
import { needTerminal, ownSize } from './attached';
import { onTerminal } from './exec';
import { exitCodeOf, follow, isInteractive } from './follow';
import { inBackground, inForeground, previewsOf, reachable, sayPreviews } from './previews';
import { type RunPlan, runOptions, runPlan } from './run-plan';
import { watching } from './starting';
import { bringUp } from './up';

const shownSetUpLines = 20;

/** A new session and a command in it. */
export async function run(args: readonly string[]): Promise<number> {
  const given = parsed('run', args, runOptions);
  const isDetached = given.has('detach');
  const isJson = given.has('json');
  const removes = given.has('rm');
  if (isDetached && removes) throw new UsageError('-d and --rm exclude each other');
  if (given.has('tty') && (isDetached || isJson))
    throw new UsageError(`-t and ${isDetached ? '-d' : '--json'} exclude each other`);
  if (given.has('tty')) needTerminal('-t');
  if (given.has('wake') && !given.has('public'))
    throw new UsageError('--wake goes with --public', 'as in: -p 8000 --public --wake');
  const plan = await runPlan(given);
  const bundle = given.has('no-bundle') ? null : await bundleOf(process.cwd());
  if (given.has('dry-run')) return showPlan(plan, bundle, isJson);
  const { vmux, isEmbedded } = await findServer(bringUp);
  const asked = plan.create.provider;
  const offer = asked === undefined ? undefined : await checkProvider(vmux, asked);
  const provider = asked ?? (isEmbedded ? await chosenProvider(vmux) : undefined);
  const create = { ...plan.create, provider, vmux };
  const sandbox = await created(create, bundle);
  rememberLast(sandbox.id);
  try {
    await setUp(sandbox, plan);
  } catch (fault) {
    if (removes) await sandbox.delete({ force: true });
    throw fault;
  }
  const access = { isPublic: given.has('public'), wakes: given.has('wake') };
  const previews = await previewsOf(sandbox, plan.ports, access);
  const isTerminal = given.has('tty');
  const takesInput = given.has('stdin') && !isDetached && !isTerminal;
  const { command, timeoutMs } = plan;
  const started = await sandbox.commands.start(command, {
    ...{ timeoutMs, takesInput },
    ...(isTerminal ? { pty: ownSize() } : {}),
  });
  const ids = { session: sandbox.id, exec: started.id };
  if (isDetached) {
    if (isJson)
      await print(jsonText({ ...ids, ...(await reachable(previews, inBackground(sandbox))) }));
    else await print(sandbox.id);
    if (!isJson) await sayPreviews(sandbox.id, previews);
    return 0;
  }
  await whisper(`session ${sandbox.id}${offer?.emulated ? ` on ${labelled(offer)}` : ''}`);
  if (!isJson) await sayPreviews(sandbox.id, previews);
  if (isTerminal) return ended(await onTerminal(started, sandbox.id), sandbox, removes);
  const here = inForeground(sandbox);
  if (isJson && previews.length > 0)
    await print(jsonText({ ...ids, ...(await reachable(previews, here.localUrl)) }));
  const onInterrupt = isInteractive() && !removes ? 'detach' : 'forward';
  const { begun, stop } = watching(sandbox, started.id, plan.ports);
  const result = await follow(started, {
    ...{ onInterrupt, streams: !isJson, input: takesInput, onOutput: begun },
  });
  stop();
  here.close();
  if (!result) {
    if (onInterrupt === 'forward') return ended(exitCodes.interrupted, sandbox, removes);
    await say(
      `detached; it goes on. Come back: vmux logs -f ${sandbox.id}; end it: vmux stop ${sandbox.id}`,
    );
    return 0;
  }
  if (isJson) {
    const { id: _, ...rest } = result;
    await print(jsonText({ ...ids, ...rest }));
  }
  const code = await exitCodeOf(result);
  if (result.exit.kind === 'not_started' && result.exit.reason === 'session_failed')
    await sayWhy(sandbox);
  if (result.exit.kind === 'not_started' && result.exit.reason === 'setup_failed')
    await showSetUp(sandbox, removes);
  return ended(code, sandbox, removes);
}

/** Line by line: a build that failed comes with the end of its log. */
async function sayWhy(sandbox: Sandbox): Promise<void> {
  const { message } = await sandbox.info();
  for (const line of message?.split('\n') ?? []) await say(visible(line));
}

/** The end of its output: with the session gone there is nowhere else to look. */
async function showSetUp(sandbox: Sandbox, removes: boolean): Promise<void> {
  const offset = await offsetOfLastLines(sandbox, {}, shownSetUpLines);
  let text = '';
  for await (const item of sandbox.logs({ offset }))
    if (item.kind === 'bytes') text += item.bytes.toString();
  for (const line of text.trimEnd().split('\n')) await say(`set-up: ${visible(line)}`);
  const all = removes ? 'to look into it: without --rm' : `all of it: vmux logs ${sandbox.id}`;
  await say(`${all}; to run the command all the same: --setup none`);
}

async function ended(code: number, sandbox: Sandbox, removes: boolean): Promise<number> {
  if (removes) await sandbox.delete({ force: true });
  else
    await whisper(
      `session ${sandbox.id} stays: vmux exec ${sandbox.id} -- …, vmux stop ${sandbox.id}`,
    );
  return code;
}

/** What was sent before is not sent again: its digest names it. */
async function created(
  options: CreateOptions & { readonly vmux: Vmux },
  bundle: Bundle | null,
): Promise<Sandbox> {
  if (!bundle) return Sandbox.create(options);
  const setup = options.setup ?? (options.egress ? 'auto' : 'none');
  if (bundle.leftOut.length > 0)
    await whisper(`not sent: ${bundle.leftOut.map(visible).join(', ')}`);
  if (options.setup === undefined && setup === 'none' && bundle.manifest !== null)
    await whisper(`what ${bundle.manifest} asks for is not installed: --egress lets it be`);
  const withBundle = { ...options, setup, bundle: bundle.digest } as const;
  try {
    return await Sandbox.create(withBundle);
  } catch (fault) {
    if (!(fault instanceof VmuxError && fault.code === 'bundle_not_found')) throw fault;
  }
  await whisper(`sending ${describe(bundle)}`);
  const line = new StatusLine();
  const total = bundle.bytes.length;
  const onProgress = (sent: number) => line.show(`sending … ${Math.floor((100 * sent) / total)} %`);
  await options.vmux.uploadBundle(bundle.bytes, process.stderr.isTTY ? { onProgress } : {});
  line.clear();
  return Sandbox.create(withBundle);
}

const describe = ({ files, bytes }: Bundle): string =>
  `${files} files, ${Math.ceil(bytes.length / 1024)} KiB`;

/** The target's own preparation; the command does not run when it fails. */
async function setUp(sandbox: Sandbox, { setupLine }: RunPlan): Promise<void> {
  if (setupLine === null) return;
  await whisper(`set-up: ${visible(setupLine)}`);
  const started = await sandbox.commands.start(setupLine, { purpose: 'setup' });
  const { begun, stop } = watching(sandbox, started.id, []);
  const result = await follow(started, {
    ...{ onInterrupt: 'forward', streams: true, onOutput: begun },
  });
  stop();
  if (result?.exit.kind === 'exited' && result.exit.code === 0) return;
  throw new Failure(
    `the set-up did not succeed: ${visible(setupLine)}`,
    `see: vmux logs ${sandbox.id}; try again in it: vmux exec ${sandbox.id} -- …`,
  );
}

type Taker = Awaited<ReturnType<typeof Sandbox.check>>;

/** The provider that would take the session, if there is a server now that can be asked; nothing is made. */
async function takerOf({ create }: RunPlan): Promise<Taker | null> {
  const server = await findServer().catch((fault) => {
    if (fault instanceof Failure) return null;
    throw fault;
  });
  if (!server) return null;
  const { vmux } = server;
  if (create.provider !== undefined) await checkProvider(vmux, create.provider);
  try {
    return await Sandbox.check({ ...create, vmux });
  } catch (fault) {
    // From before there was such a question.
    if (VmuxError.is(fault, 'not_found')) return null;
    throw fault;
  }
}

async function showPlan(plan: RunPlan, bundle: Bundle | null, isJson: boolean): Promise<number> {
  const taker = await takerOf(plan);
  const { env, ...create } = plan.create;
  const shown = {
    ...{ target: plan.target, command: plan.command, setupLine: plan.setupLine },
    timeoutMs: plan.timeoutMs ?? null,
    session: { ...create, env: Object.keys(env ?? {}) },
    bundle: bundle && {
      ...{ digest: bundle.digest, files: bundle.files, bytes: bundle.bytes.length },
      leftOut: bundle.leftOut,
    },
    taker: taker?.provider ?? null,
    emulated: taker?.emulated ?? false,
  };
  if (isJson) {
    await print(jsonText(shown));
    return 0;
  }
  const { command, target } = plan;
  const line = typeof command === 'string' ? command : command.join(' ');
  await print(`would run: ${visible(line)}${target ? ` (target ${target})` : ''}`);
  await print(`would send: ${bundle ? describe(bundle) : 'nothing'}`);
  await print(`in a session: ${jsonText(shown.session)}`);
  await print(
    taker
      ? `${labelled(taker)} would take it`
      : 'no server that can be asked runs: nobody was asked whether it can be run',
  );
  return 0;
}
