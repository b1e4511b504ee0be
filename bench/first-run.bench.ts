/**
 * The first run of a newcomer: a fresh clone, an empty home, an empty npm cache, `./vmux run -- echo hello`;
 * then the same again. What it takes depends on the network to the package registry more than on us.
 */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot, releaseAll, releaseLater, temporaryDirectory } from '@vmux/testing';
import { figure, printJson, printTable, wantsJson } from './report';

const aimSeconds = 180;
const laterRuns = 5;

interface Run {
  readonly seconds: number;
  /** Until the command's first output. */
  readonly firstOutputSeconds: number;
  readonly stderr: string;
}

async function main(): Promise<void> {
  const place = temporaryDirectory('first-run');
  const clone = join(place, 'vmux');
  const home = join(place, 'home');
  mkdirSync(home);
  execFileSync('git', ['clone', '--quiet', projectRoot(), clone]);
  const env = {
    ...{ PATH: process.env.PATH, HOME: home, VMUX_PORT: '0' },
    npm_config_cache: join(place, 'npm-cache'),
  };
  const vmux = (...args: readonly string[]) => timed(join(clone, 'vmux'), args, clone, env);
  releaseLater(async () => {
    const { stdout } = await vmux('ps', '--json');
    for (const { id } of JSON.parse(stdout || '[]')) await vmux('rm', '--force', id);
    await vmux('down');
  });

  const first = await vmux('run', '--', 'echo', 'hello');
  const steps = [...first.stderr.matchAll(/^vmux set-up: (.+): ([\d.]+) s$/gm)].map(
    ([, name = '', seconds]) => ({ name, seconds: Number(seconds) }),
  );
  const rest = first.seconds - steps.reduce((sum, { seconds }) => sum + seconds, 0);
  const later: Run[] = [];
  for (let run = 0; run < laterRuns; run += 1)
    later.push(await vmux('run', '--rm', '--', 'echo', 'hello'));
  const again = Math.min(...later.map(({ firstOutputSeconds }) => firstOutputSeconds));
  const rows = [
    ...steps.map(({ name, seconds }) => [name, figure(seconds)]),
    ['stack, provider, sandbox, command', figure(rest)],
    [`first run in all (aim: ${aimSeconds})`, figure(first.seconds)],
    [`a later run, to its first output (best of ${laterRuns})`, figure(again)],
  ];
  printTable(['from a fresh clone, with an empty npm cache', 'seconds'], rows);
  if (wantsJson()) printJson({ firstRunSeconds: first.seconds, laterFirstOutputSeconds: again });
}

function timed(
  program: string,
  args: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv,
): Promise<Run & { readonly stdout: string }> {
  const began = performance.now();
  const since = () => (performance.now() - began) / 1000;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let [stdout, stderr, firstOutputSeconds] = ['', '', 0];
    child.stdout.setEncoding('utf8').on('data', (piece: string) => {
      firstOutputSeconds ||= since();
      stdout += piece;
    });
    child.stderr.setEncoding('utf8').on('data', (piece: string) => {
      stderr += piece;
    });
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve({ seconds: since(), firstOutputSeconds, stdout, stderr });
      else reject(new Error(`vmux ${args.join(' ')} ended with ${code}: ${stderr}`));
    });
  });
}

main()
  .finally(releaseAll)
  .catch((fault: Error) => {
    console.error(fault.message);
    process.exitCode = 1;
  });
