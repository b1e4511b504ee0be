import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import { ENTRY_PORT, type LaunchBody } from '../src/entry-client';
import type { Limits } from '../src/wire';
import { Entry, type Inside } from './entry';

const supervisorFile = '/opt/vmux/vmux-supervisor';
const ours = '/var/lib/vmux';
const socketFile = `${ours}/socket`;
const group = '/sys/fs/cgroup/vmux';
/** What Cloudflare grants between SIGTERM and SIGKILL. */
const graceMs = 15 * 60_000;
/** Without a runner for this long, the supervisor ends and the container with it. */
const leaseSeconds = 3600;
const comesUpWithinMs = 10_000;

async function launch({ name, limits }: LaunchBody): Promise<void> {
  await mkdir(ours, { recursive: true, mode: 0o700 });
  const join = (await limitsHold(limits)) ? `echo $$ > ${group}/cgroup.procs; ` : '';
  const program = `${join}exec ${supervisorFile} run --listen=${socketFile} --spool=${ours}/spool --epoch=${name.epoch} --instance=${name.instance} --lease-seconds=${leaseSeconds}`;
  const supervisor = spawn('/bin/sh', ['-c', program], { stdio: ['ignore', 'inherit', 'inherit'] });
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
    await writeFile(`${group}/pids.max`, String(pids));
    await writeFile(`${group}/memory.max`, String(memoryMiB * 1024 * 1024));
    return true;
  } catch (fault) {
    console.error(`limits are those of the instance type: ${fault}`);
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

const token = process.env.VMUX_ENTRY_TOKEN ?? '';
delete process.env.VMUX_ENTRY_TOKEN;
if (token.length < 16) {
  // Started by somebody else than our Worker's create: nothing must answer here as if it were a sandbox.
  console.error('VMUX_ENTRY_TOKEN is missing: this container was not started by vmux');
  process.exit(1);
}
const inside: Inside = { launch, connect: dial };
const entry = new Entry({ token, inside });
const server = createServer((request, response) => entry.handle(request, response));
server.on('upgrade', (request, socket, head) => entry.upgrade(request, socket, head));
server.listen(ENTRY_PORT, '0.0.0.0');
process.on('SIGTERM', () => entry.evict(Date.now() + graceMs));
process.on('SIGINT', () => undefined);
