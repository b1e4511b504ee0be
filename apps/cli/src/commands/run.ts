import { type CreateOptions, Sandbox, type Vmux, VmuxError } from '@vmux/sdk';
import { commandOf, noNames, parsed } from '../arguments';
import { type Bundle, bundleOf } from '../bundle/bundle';
import { exitCodes, UsageError } from '../failure';
import { findServer, rememberLast } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print, say, whisper } from '../terminal/output';
import { exitCodeOf, follow, isInteractive, variablesFrom } from './follow';
import { bringUp } from './up';

const options = {
  detach: { type: 'boolean', short: 'd' },
  env: { type: 'string', short: 'e', multiple: true },
  name: { type: 'string' },
  provider: { type: 'string' },
  image: { type: 'string' },
  label: { type: 'string', multiple: true },
  timeout: { type: 'string' },
  rm: { type: 'boolean' },
  'no-bundle': { type: 'boolean' },
  json: { type: 'boolean' },
} as const;

/** A new session and a command in it. */
export async function run(args: readonly string[]): Promise<number> {
  const given = parsed('run', args, options);
  noNames(given, 'run');
  const command = commandOf(given, 'vmux run -- echo hello');
  const isDetached = given.has('detach');
  const removes = given.has('rm');
  if (isDetached && removes) throw new UsageError('-d and --rm exclude each other');
  const timeoutMs = given.duration('timeout');
  const { vmux } = await findServer(bringUp);
  const sandbox = await created(given.has('no-bundle') ? null : await bundled(), {
    vmux,
    name: given.text('name'),
    directory: process.cwd(),
    provider: given.text('provider'),
    image: given.text('image'),
    env: variablesFrom(given.texts('env')),
    labels: labelsFrom(given.texts('label')),
  });
  rememberLast(sandbox.id);
  const started = await sandbox.commands.start(command, { timeoutMs });
  if (isDetached) {
    const ids = { session: sandbox.id, exec: started.id };
    await print(given.has('json') ? jsonText(ids) : sandbox.id);
    return 0;
  }
  await whisper(`session ${sandbox.id}`);
  const onInterrupt = isInteractive() && !removes ? 'detach' : 'cancel';
  const result = await follow(started, { onInterrupt, streams: !given.has('json') });
  if (removes) await sandbox.delete({ force: true });
  if (!result) {
    if (onInterrupt === 'cancel') return exitCodes.interrupted;
    await say(
      `detached; it goes on. Come back: vmux logs -f ${sandbox.id}; end it: vmux stop ${sandbox.id}`,
    );
    return 0;
  }
  if (given.has('json')) {
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

async function bundled(): Promise<Bundle | null> {
  const bundle = await bundleOf(process.cwd());
  if (!bundle) return null;
  const { files, bytes, leftOut } = bundle;
  const without = leftOut.length > 0 ? `, without ${leftOut.map(visible).join(', ')}` : '';
  await whisper(`sending ${files} files, ${Math.ceil(bytes.length / 1024)} KiB${without}`);
  return bundle;
}

/** What was sent before is not sent again: its digest names it. */
async function created(
  bundle: Bundle | null,
  options: CreateOptions & { readonly vmux: Vmux },
): Promise<Sandbox> {
  if (!bundle) return Sandbox.create(options);
  const withBundle = { ...options, bundle: bundle.digest, setup: 'none' } as const;
  try {
    return await Sandbox.create(withBundle);
  } catch (fault) {
    if (!(fault instanceof VmuxError && fault.code === 'bundle_not_found')) throw fault;
  }
  await options.vmux.uploadBundle(bundle.bytes);
  return Sandbox.create(withBundle);
}

function labelsFrom(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      if (at <= 0) throw new UsageError(`--label takes name=value, not "${text}"`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}
