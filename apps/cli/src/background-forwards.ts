import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { Failure } from './failure';
import { dataPathOf } from './stack/data-directory';
import { endProcess, identityOf, type ProcessIdentity } from './stack/process-identity';

const directory = (): string => join(dataPathOf(process.env), 'forwards');

/** A `vmux forward` of its own that ends with the session; resolves with the URL on this machine. */
export async function forwardInBackground(sessionId: string, port: number): Promise<string> {
  const program = resolve(__dirname, 'main.js');
  const child = spawn(
    process.execPath,
    [program, 'forward', '--json', '--background', sessionId, `${port}:0`],
    { cwd: '/', stdio: ['ignore', 'pipe', 'ignore'], detached: true },
  );
  const line = await new Promise<string | null>((done) => {
    createInterface({ input: child.stdout }).once('line', done);
    child.once('error', () => done(null));
    child.once('exit', () => done(null));
  });
  child.stdout.destroy();
  child.unref();
  const said = line === null ? {} : (JSON.parse(line) as { localUrl?: unknown });
  if (typeof said.localUrl === 'string') return said.localUrl;
  throw new Failure(
    `port ${port} could not be forwarded`,
    `try: vmux forward ${sessionId} ${port}`,
  );
}

/** Remembers this process, so that `vmux down` can end it. */
export function rememberForward(): () => void {
  mkdirSync(directory(), { recursive: true, mode: 0o700 });
  const file = join(directory(), `${process.pid}.json`);
  writeFileSync(file, JSON.stringify(identityOf(process.pid)), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

export async function endForwards(): Promise<void> {
  for (const name of namesIn(directory())) {
    const file = join(directory(), name);
    const identity = JSON.parse(readFileSync(file, 'utf8')) as ProcessIdentity | null;
    if (identity) await endProcess(identity, 5_000);
    rmSync(file, { force: true });
  }
}

function namesIn(path: string): readonly string[] {
  try {
    return readdirSync(path).filter((name) => /^\d+\.json$/.test(name));
  } catch (fault) {
    if ((fault as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw fault;
  }
}
