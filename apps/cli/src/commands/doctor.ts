import { lookup } from 'node:dns/promises';
import { accessSync, constants, existsSync, mkdirSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { noNames, parsed } from '../arguments';
import { defaultImage, type Finding, pathOf, sandboxes } from '../diagnosis';
import { exitCodes } from '../failure';
import { savedLogin } from '../login-file';
import { labelled, type Offer } from '../offers';
import { findServer } from '../server';
import { dataPathOf } from '../stack/data-directory';
import { natsImageIn, programsIn } from '../stack/programs';
import { runningStack } from '../stack/stack-record';
import { jsonText, visible } from '../terminal/escape';
import { print } from '../terminal/output';

const minFreeBytes = 1024 ** 3;
const marks = { good: 'ok  ', limited: 'note', bad: 'BAD ' } as const;

/** What this machine has, what it lacks, and what to do about it. */
export async function doctor(args: readonly string[]): Promise<number> {
  const given = parsed('doctor', args, { json: { type: 'boolean' } });
  noNames(given, 'doctor');
  const { offers, findings: answered } = await server();
  const made = sandboxes(offers);
  const findings: Finding[] = [
    node(),
    natsServer(),
    ...program('openssl', 'openssl', 'bad'),
    ...program('cc', 'gcc libc6-dev', existsSync(builtLauncher()) ? 'limited' : 'bad'),
    ...(process.getuid?.() === 0 ? program('mkfs.btrfs', 'btrfs-progs', 'limited') : []),
    data(),
    ...made,
    defaultImage(made, process.env),
    await previewNames(),
    ...answered,
  ];
  const isWell = findings.every(({ state }) => state !== 'bad');
  if (given.has('json')) await print(jsonText({ well: isWell, findings }));
  else
    for (const { what, state, detail, fix } of findings)
      await print(
        `${marks[state]}  ${what}: ${visible(detail)}${fix ? `\n      do: ${visible(fix)}` : ''}`,
      );
  return isWell ? 0 : exitCodes.failed;
}

function node(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isNew = major > 20 || (major === 20 && minor >= 19);
  const detail = `${process.versions.node}${isNew ? '' : ', which is too old'}`;
  return isNew
    ? { what: 'Node.js', state: 'good', detail }
    : { what: 'Node.js', state: 'bad', detail, fix: 'install Node.js 20.19 or newer' };
}

function natsServer(): Finding {
  const found = pathOf('nats-server', programsIn(dataPathOf(process.env)));
  if (found) return { what: 'nats-server', state: 'good', detail: found };
  const imageFile = natsImageIn(dataPathOf(process.env));
  if (existsSync(imageFile)) {
    const detail = `in a container: ${readFileSync(imageFile, 'utf8').trim()}`;
    return { what: 'nats-server', state: 'good', detail };
  }
  return {
    ...{ what: 'nats-server', state: 'bad', detail: 'not found' },
    fix: 'Debian, Ubuntu: run ./vmux run once, or sudo apt-get install nats-server; macOS: brew install nats-server; elsewhere: start a Docker engine and run ./vmux run once',
  };
}

function program(name: string, packages: string, otherwise: 'limited' | 'bad'): Finding[] {
  const found = pathOf(name);
  if (found) return [{ what: name, state: 'good', detail: found }];
  const fix = `sudo apt-get install ${packages}`;
  return [{ what: name, state: otherwise, detail: 'not found', fix }];
}

function data(): Finding {
  const path = dataPathOf(process.env);
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    accessSync(path, constants.W_OK);
  } catch (fault) {
    const fix = 'set VMUX_DATA_DIR to a directory that you may write';
    return { what: 'data', state: 'bad', detail: (fault as Error).message, fix };
  }
  const { bavail, bsize } = statfsSync(path);
  const free = bavail * bsize;
  const detail = `${path}, ${(free / 1024 ** 3).toFixed(1)} GiB free`;
  return free > minFreeBytes
    ? { what: 'data', state: 'good', detail }
    : { what: 'data', state: 'bad', detail, fix: 'make room, or set VMUX_DATA_DIR elsewhere' };
}

async function previewNames(): Promise<Finding> {
  const what = 'preview names (*.localhost)';
  try {
    const { address } = await lookup('8000-web-1a2b.localhost');
    return { what, state: 'good', detail: `resolve to ${address}` };
  } catch {
    return {
      ...{ what, state: 'limited', detail: 'resolve in browsers and curl, but not by this system' },
      fix: 'use the localUrl of vmux run --json, or vmux forward',
    };
  }
}

/** What is found of the server, and what the runners of this machine say that they offer. */
async function server(): Promise<{ findings: Finding[]; offers: readonly Offer[] }> {
  const what = 'server';
  const isElsewhere = Boolean(process.env.VMUX_URL) || savedLogin() !== null;
  const alone = (finding: Finding) => ({ findings: [finding], offers: [] });
  if (!isElsewhere && !runningStack(dataPathOf(process.env))?.url)
    return alone({
      ...{ what, state: 'limited', detail: 'none runs here' },
      fix: 'vmux up (run starts one too)',
    });
  try {
    const { vmux } = await findServer();
    const { runners } = await vmux.call<Runners>('GET', '/v1/runners');
    const own: Finding = { what, state: 'good', detail: `answers at ${vmux.url}` };
    const alive = isElsewhere ? [] : runners.filter((runner) => runner.alive);
    return {
      findings: [own, ...runners.flatMap(providersOf)],
      offers: alive.flatMap(({ providers }) => providers),
    };
  } catch (fault) {
    const detail = (fault as Error).message;
    return alone({ what, state: 'bad', detail, fix: 'see its log: vmux status says where' });
  }
}

interface Runners {
  readonly runners: readonly Runner[];
}

interface Runner {
  readonly runnerId: string;
  readonly alive: boolean;
  readonly providers: readonly Offer[];
}

const providersOf = ({ runnerId, alive, providers }: Runner): Finding[] =>
  providers.map(({ provider, available, reason, emulated }) => ({
    what: `provider ${visible(labelled({ provider, emulated }))}`,
    state: available && alive ? 'good' : 'limited',
    detail: !alive
      ? `runner ${runnerId} is not heard of`
      : available
        ? `available at runner ${runnerId}`
        : (reason ?? 'not available'),
  }));

const builtLauncher = (): string => join(__dirname, '../../../../native/vmux-ns');
