import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { ENTRY_PORT, type LaunchBody } from '../src/entry-client';
import type { Limits } from '../src/wire';
import { Entry, type Inside } from './entry';

/** The first program of a container; the image sets none of these. */
const {
  VMUX_ENTRY_TOKEN: token = '',
  VMUX_ENTRY_HOST: host = '0.0.0.0',
  VMUX_ENTRY_PORT: port = String(ENTRY_PORT),
  VMUX_ENTRY_DIR: ours = '/var/lib/vmux',
  VMUX_SUPERVISOR: supervisorFile = '/opt/vmux/vmux-supervisor',
  VMUX_CGROUP: group = '/sys/fs/cgroup/vmux',
} = process.env;
const socketFile = `${ours}/socket`;
/** What Cloudflare grants between SIGTERM and SIGKILL. */
const graceMs = 15 * 60_000;
/** Without a runner for this long, the supervisor ends and the container with it. */
const leaseSeconds = 3600;
const comesUpWithinMs = 10_000;

async function launch({ name, limits }: LaunchBody): Promise<void> {
  await mkdir(ours, { recursive: true, mode: 0o700 });
  const run = [
    supervisorFile,
    'run',
    `--listen=${socketFile}`,
    `--spool=${ours}/spool`,
    `--epoch=${name.epoch}`,
    `--instance=${name.instance}`,
    `--lease-seconds=${leaseSeconds}`,
  ];
  const inGroup = ['-c', 'echo $$ > "$0/cgroup.procs"; exec "$@"', group, ...run];
  const isLimited = await limitsHold(limits);
  const supervisor = spawn(
    isLimited ? '/bin/sh' : supervisorFile,
    isLimited ? inGroup : run.slice(1),
    { stdio: ['ignore', 'inherit', 'inherit'], env: {} },
  );
  // Without its supervisor a container is nothing: it ends, and the Worker sees that it did.
  supervisor.once('exit', (code) => process.exit(code ?? 1));
  supervisor.once('error', () => process.exit(1));
  for (const deadline = Date.now() + comesUpWithinMs; ; ) {
    try {
      (await dial()).destroy();
      return;
    } catch (fault) {
      if (Date.now() > deadline) throw fault;
      await new Promise((done) => setTimeout(done, 20));
    }
  }
}

/** The instance type bounds the whole machine; where cgroups can be written, the session's own limits too. */
async function limitsHold({ memoryMiB, pids }: Limits): Promise<boolean> {
  try {
    await mkdir(group, { recursive: true });
    await writeFile(`${group}/pids.max`, String(pids), { flag: 'r+' });
    await writeFile(`${group}/memory.max`, String(memoryMiB * 1024 * 1024), { flag: 'r+' });
    return true;
  } catch (fault) {
    console.error(`the only limits are those of the instance type: ${fault}`);
    return false;
  }
}

function dial(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketFile);
    socket.once('connect', () => resolve(socket));
    socket.once('error', reject);
  });
}

if (token.length < 16) {
  // Started by somebody else than our Worker's create: nothing must answer here as if it were a sandbox.
  console.error('VMUX_ENTRY_TOKEN is missing: this container was not started by vmux');
  process.exit(1);
}
const inside: Inside = { launch, connect: dial };
const entry = new Entry({ token, inside });
const server = createServer((request, response) => entry.handle(request, response));
server.on('upgrade', (request, socket, head) => entry.upgrade(request, socket, head));
server.listen(Number(port), host, () => {
  console.log(JSON.stringify({ ready: true, port: (server.address() as AddressInfo).port }));
});
process.on('SIGTERM', () => entry.evict(Date.now() + graceMs));
process.on('SIGINT', () => undefined);
