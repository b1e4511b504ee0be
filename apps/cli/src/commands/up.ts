import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, renameSync, statfsSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { noNames, parsed } from '../arguments';
import { Failure } from '../failure';
import { DataDirectory, dataPathOf } from '../stack/data-directory';
import { runningStack, type StackRecord } from '../stack/stack-record';
import { jsonText } from '../terminal/escape';
import { print, say } from '../terminal/output';

const readyWithinMs = 120_000;
const lookEveryMs = 25;
const maxLogBytes = 16 * 1024 * 1024;
const shownLines = 8;
const neededMiB = 256;

/** Starts the embedded stack in the background, unless it runs. */
export async function up(args: readonly string[]): Promise<number> {
  const given = parsed('up', args, {
    json: { type: 'boolean' },
    with: { type: 'string', multiple: true },
  });
  noNames(given, 'up');
  const extras = given.texts('with');
  if (extras.length > 0 && runningStack(dataPathOf(process.env)))
    throw new Failure('the stack runs already: nothing can be added to it', 'vmux down first');
  const { url, pid } = await bringUp(extras);
  const data = DataDirectory.ofUser(process.env).path;
  if (given.has('json')) await print(jsonText({ running: true, url, pid, data }));
  else await print(`vmux serves at ${url} (process ${pid}, data in ${data})`);
  return 0;
}

/** The stack that serves: the one that runs, or a new one with these emulated providers. */
export async function bringUp(
  extras: readonly string[] = [],
): Promise<StackRecord & { readonly url: string }> {
  const data = DataDirectory.ofUser(process.env);
  const logFile = join(data.path, 'stack.log');
  const begun = runningStack(data.path);
  if (!begun) checkRoom(data.path);
  if (!begun) await say(`starting the stack in the background (log: ${logFile})`);
  const child = begun ? null : launch(data, logFile, extras);
  const deadline = Date.now() + readyWithinMs;
  for (;;) {
    const stack = runningStack(data.path);
    if (stack?.url) return { ...stack, url: stack.url };
    const isGone = child ? child.hasEnded() : !stack;
    // Another `vmux up` may have been faster: then ours ends and its stack is found.
    if (isGone && !stack)
      throw new Failure(`the stack did not start:\n${lastLines(logFile)}`, `see ${logFile}`);
    if (Date.now() > deadline)
      throw new Failure(`the stack is not ready after ${readyWithinMs / 1000} s`, `see ${logFile}`);
    await new Promise((done) => setTimeout(done, lookEveryMs));
  }
}

/** Said before it is begun: half of a stack on a full disk is no stack. */
function checkRoom(path: string): void {
  const { bavail, bsize } = statfsSync(path);
  const freeMiB = Math.floor((bavail * bsize) / 1024 ** 2);
  if (freeMiB >= neededMiB) return;
  throw new Failure(
    `the disk of ${path} is full: ${freeMiB} MiB are free`,
    `make room (${neededMiB} MiB at least), or set VMUX_DATA_DIR to a directory elsewhere`,
  );
}

function launch(
  data: DataDirectory,
  logFile: string,
  extras: readonly string[],
): { hasEnded(): boolean } {
  keepLogSmall(logFile);
  const log = openSync(logFile, 'a', 0o600);
  try {
    const program = resolve(__dirname, '../stack/main.js');
    const child = spawn(process.execPath, [program], {
      cwd: data.path,
      env: {
        ...process.env,
        VMUX_DATA_DIR: data.path,
        ...(extras.length > 0 ? { VMUX_WITH: extras.join(',') } : {}),
      },
      stdio: ['ignore', log, log],
      // A session of its own: it outlives this terminal, and Ctrl-C here does not reach it.
      detached: true,
    });
    let ended = false;
    child.once('error', () => {
      ended = true;
    });
    child.once('exit', () => {
      ended = true;
    });
    child.unref();
    return { hasEnded: () => ended };
  } finally {
    closeSync(log);
  }
}

function keepLogSmall(file: string): void {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size > maxLogBytes) renameSync(file, `${file}.1`);
}

const lastLines = (file: string): string =>
  readFileSync(file, 'utf8').trimEnd().split('\n').slice(-shownLines).join('\n');
