/**
 * Connections to ports of a sandbox on Modal, emulated on this machine: over a direct pipe, which is a
 * WebSocket behind a connect token, and over the usual one, an exec's stdio. In turns, on one sandbox. Then
 * with 50 ms added to whatever goes in, on either way. What Modal itself takes is not known from this.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { SupervisorClient } from '@vmux/runner-kit';
import { projectRoot, releaseAll, temporaryDirectory, until } from '@vmux/testing';
import { ModalDriver } from '../apps/runner-modal/src/drivers/modal-driver';
import { startModalEmulator } from '../apps/runner-modal/test/emulator';
import { figure, median, printJson, printTable, wantsJson } from './report';

const BYTES = 10 * 1024 * 1024;
const ROUNDS = 5;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** The first byte says which: one back, all bytes back, or one once all have come. */
const APP = `
import socketserver
class App(socketserver.BaseRequestHandler):
    def handle(self):
        kind = self.request.recv(1)
        if kind == b'd': self.request.sendall(bytes(${BYTES}))
        if kind == b'u':
            left = ${BYTES}
            while left: left -= len(self.request.recv(min(left, 65536)))
        self.request.sendall(b'.')
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(('127.0.0.1', 9000), App).serve_forever()`;

const KINDS = { asked: 'a', down: 'd', up: 'u' } as const;
type Kind = keyof typeof KINDS;
const content = randomBytes(BYTES);

async function took(client: SupervisorClient, kind: Kind): Promise<number> {
  const begun = performance.now();
  const stream = await client.dial(9000);
  stream.write(KINDS[kind]);
  if (kind === 'up') stream.write(content);
  let bytes = 0;
  for await (const piece of stream) bytes += piece.length;
  if (bytes !== (kind === 'down' ? BYTES + 1 : 1)) throw new Error(`${bytes} bytes came back`);
  return performance.now() - begun;
}

const WORDS = { asked: 'a byte there and back', down: '10 MiB down', up: '10 MiB up' };

async function main(): Promise<void> {
  const emulator = await startModalEmulator();
  const { tokenId, tokenSecret, url: serverUrl } = emulator;
  const driver = new ModalDriver({
    ...{ runnerId: 'bench', tokenId, tokenSecret, serverUrl, appName: 'vmux-bench' },
    supervisorFile: join(projectRoot(), 'dist/native/vmux-supervisor'),
    defaultImage: 'python:3.12-slim-bookworm',
    snapshotsDirectory: temporaryDirectory('modal-snapshots'),
  });
  const id = { sessionId: 'bench-0000', epoch: 1, instance: randomBytes(4).toString('hex') };
  const limits = { cpus: 2, memoryMiB: 512, diskMiB: 1024, pids: 256 };
  await driver.create({ id, limits, image: null, egress: false, gpu: null });
  try {
    const usual = await SupervisorClient.connect(await driver.openPipe(id), id);
    await usual.start({ execId: 'app', argv: ['python3', '-c', APP], env: { PATH } });
    await until(async () => (await usual.dial(9000)).destroy());
    const begun = performance.now();
    const direct = await SupervisorClient.connect(await driver.openDirectPipe(id), id);
    const openedMs = performance.now() - begun;
    const rows = [];
    for (const inputDelayMs of [0, 50]) {
      await emulator.faults({ inputDelayMs });
      for (const kind of Object.keys(KINDS) as Kind[]) {
        const times = { direct: [] as number[], usual: [] as number[] };
        for (let round = 0; round < ROUNDS; round += 1) {
          times.direct.push(await took(direct, kind));
          times.usual.push(await took(usual, kind));
        }
        const [directMs, usualMs] = [median(times.direct), median(times.usual)];
        rows.push({ inputDelayMs, kind, directMs, usualMs });
      }
    }
    direct.close();
    usual.close();
    if (wantsJson()) {
      const named = rows.flatMap(({ inputDelayMs, kind, directMs, usualMs }) => [
        [`${kind}${inputDelayMs}DirectMs`, directMs],
        [`${kind}${inputDelayMs}UsualMs`, usualMs],
      ]);
      printJson({ openedMs, ...Object.fromEntries(named) });
      return;
    }
    console.log(
      `emulated; opening the direct pipe took ${figure(openedMs)} ms; medians of ${ROUNDS}`,
    );
    printTable(
      ['', 'added ms', 'direct ms', 'usual ms', 'ratio'],
      rows.map(({ inputDelayMs, kind, directMs, usualMs }) => [
        WORDS[kind],
        String(inputDelayMs),
        ...[directMs, usualMs, usualMs / directMs].map(figure),
      ]),
    );
  } finally {
    await driver.destroy(id);
    await driver.close();
    await emulator.stop();
    await releaseAll();
  }
}

main().then(
  () => process.exit(0),
  (fault) => {
    console.error(fault);
    process.exit(1);
  },
);
