import { type CreateOptions, Sandbox, type Vmux, VmuxError } from '@vmux/sdk';
import { parsed } from '../arguments';
import { type Bundle, bundleOf } from '../bundle/bundle';
import { exitCodes, Failure, UsageError } from '../failure';
import { findServer, rememberLast } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print, say, whisper } from '../terminal/output';
import { exitCodeOf, follow, isInteractive } from './follow';
import { type RunPlan, runOptions, runPlan } from './run-plan';
import { bringUp } from './up';

/** A new session and a command in it. */
export async function run(args: readonly string[]): Promise<number> {
  const given = parsed('run', args, runOptions);
  const isDetached = given.has('detach');
  const isJson = given.has('json');
  const removes = given.has('rm');
  if (isDetached && removes) throw new UsageError('-d and --rm exclude each other');
  const plan = await runPlan(given);
  const bundle = given.has('no-bundle') ? null : await bundleOf(process.cwd());
  if (given.has('dry-run')) return showPlan(plan, bundle, isJson);
  const { vmux } = await findServer(bringUp);
  const sandbox = await created(vmux, plan, bundle);
  rememberLast(sandbox.id);
  await setUp(sandbox, plan);
  const takesInput = given.has('stdin') && !isDetached;
  const { command, timeoutMs } = plan;
  const started = await sandbox.commands.start(command, { timeoutMs, takesInput });
  if (isDetached) {
    const ids = { session: sandbox.id, exec: started.id };
    await print(isJson ? jsonText(ids) : sandbox.id);
    return 0;
  }
  await whisper(`session ${sandbox.id}`);
  const onInterrupt = isInteractive() && !removes ? 'detach' : 'cancel';
  const result = await follow(started, { onInterrupt, streams: !isJson, input: takesInput });
  if (removes) await sandbox.delete({ force: true });
  if (!result) {
    if (onInterrupt === 'cancel') return exitCodes.interrupted;
    await say(
      `detached; it goes on. Come back: vmux logs -f ${sandbox.id}; end it: vmux stop ${sandbox.id}`,
    );
    return 0;
  }
  if (isJson) {
    const { id: exec, ...rest } = result;
    await print(jsonText({ session: sandbox.id, exec, ...rest }));
  }
  const code = await exitCodeOf(result);
  if (!removes)
    await whisper(
      `session ${sandbox.id} stays: vmux exec ${sandbox.id} -- …, vmux stop ${sandbox.id}`,
    );
  return code;
}

/** What was sent before is not sent again: its digest names it. */
async function created(vmux: Vmux, plan: RunPlan, bundle: Bundle | null): Promise<Sandbox> {
  const options: CreateOptions = { ...plan.create, vmux };
  if (!bundle) return Sandbox.create(options);
  const withBundle = { setup: 'none' as const, ...options, bundle: bundle.digest };
  try {
    return await Sandbox.create(withBundle);
  } catch (fault) {
    if (!(fault instanceof VmuxError && fault.code === 'bundle_not_found')) throw fault;
  }
  await whisper(`sending ${describe(bundle)}`);
  await vmux.uploadBundle(bundle.bytes);
  return Sandbox.create(withBundle);
}

const describe = ({ files, bytes, leftOut }: Bundle): string => {
  const without = leftOut.length > 0 ? `, without ${leftOut.map(visible).join(', ')}` : '';
  return `${files} files, ${Math.ceil(bytes.length / 1024)} KiB${without}`;
};

/** The target's own preparation; the command does not run when it fails. */
async function setUp(sandbox: Sandbox, { setupLine }: RunPlan): Promise<void> {
  if (setupLine === null) return;
  await whisper(`set-up: ${visible(setupLine)}`);
  const started = await sandbox.commands.start(setupLine, { purpose: 'setup' });
  const result = await follow(started, { onInterrupt: 'cancel', streams: true });
  if (result?.exit.kind === 'exited' && result.exit.code === 0) return;
  throw new Failure(
    `the set-up did not succeed: ${visible(setupLine)}`,
    `see: vmux logs ${sandbox.id}; try again in it: vmux exec ${sandbox.id} -- …`,
  );
}

async function showPlan(plan: RunPlan, bundle: Bundle | null, isJson: boolean): Promise<number> {
  const { env, ...create } = plan.create;
  const shown = {
    ...{ target: plan.target, command: plan.command, setupLine: plan.setupLine },
    timeoutMs: plan.timeoutMs ?? null,
    session: { ...create, env: Object.keys(env ?? {}) },
    bundle: bundle && {
      ...{ digest: bundle.digest, files: bundle.files, bytes: bundle.bytes.length },
      leftOut: bundle.leftOut,
    },
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
  return 0;
}
