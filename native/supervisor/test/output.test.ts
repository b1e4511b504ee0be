import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { skipUnless } from '@vmux/testing';
import { Body } from './bytes';
import { type Connection, E, execOf, type Output, outputOf, state, T } from './client';
import {
  builds,
  eventually,
  make,
  readAll,
  readBody,
  run,
  Sandbox,
  sh,
  startExec,
  stateOf,
} from './harness';

const sha = (data: Buffer) => createHash('sha256').update(data).digest('hex');
const megabytes = 50;

/** What the same script writes when nothing stands between it and us. */
const reference = (script: string) =>
  spawnSync('/bin/sh', ['-c', script], { maxBuffer: 1 << 27 }).stdout;

// Every byte value, no period that fits a buffer.
const binary = `awk 'BEGIN { for (i = 0; i < 170000; i++) printf "%d-%s", i * 7919, "abcdefghijklmnopqrstuvwxyz" }' | head -c 4000000 > "$0"; gzip -1 -n < "$0" > "$0.gz"; i=0; while [ $i -lt 200 ]; do cat "$0.gz"; i=$((i+1)); done | head -c ${megabytes << 20}`;

describe.each(builds)('output (%s)', (_name, target, file) => {
  let sandbox: Sandbox;
  let c: Connection;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(file);
    c = await sandbox.start();
  });
  afterEach(() => sandbox.end());

  it('gives 50 MB of binary exactly through followers that drop and resume at random', async () => {
    const script = binary.replaceAll('"$0', `"${sandbox.folder}/data`);
    const expected = reference(script);
    expect(expected.length).toBe(megabytes << 20);
    await startExec(c, 'big', sh(script));
    const pieces: Output[] = [];
    let offset = 0;
    let drops = 0;
    for (let ended = false; !ended; ) {
      const reader = await sandbox.connect();
      const until = offset + Math.floor(Math.random() * (6 << 20)) + 1;
      const exchange = reader.request(T.READ, readBody('big', { offset, window: 300_000 }));
      while (!ended && offset < until) {
        const frame = await exchange.next();
        if (frame.type === T.EXEC) {
          ended = true;
          expect(execOf(frame.body)).toMatchObject({ state: state.exited, code: 0 });
          break;
        }
        const piece = outputOf(frame.body);
        expect(Number(piece.mergedOffset)).toBe(offset);
        pieces.push(piece);
        offset += piece.data.length;
        exchange.send(T.CREDIT, new Body().u32(piece.data.length));
      }
      drops++;
      await reader.close();
    }
    expect(drops).toBeGreaterThan(3);
    expect(sha(Buffer.concat(pieces.map(({ data }) => data)))).toBe(sha(expected));
    const again = await readAll(c, 'big', { stream: 1, offset: 1_234_567, follow: false });
    expect(sha(again.data)).toBe(sha(expected.subarray(1_234_567)));
  }, 120_000);

  it('keeps one order of stdout and stderr, the same at every reading', async () => {
    const script = `i=0; while [ $i -lt 60 ]; do echo out$i; sleep 0.005; echo err$i >&2; sleep 0.005; i=$((i+1)); done`;
    const live = await run(c, 'mixed', sh(script));
    // Which pipe is read first is the machine's affair; that each line is there once, in its stream's order, is ours.
    for (const name of ['out', 'err']) {
      const lines = live.data
        .toString()
        .split('\n')
        .filter((line) => line.startsWith(name));
      expect(lines).toEqual(Array.from({ length: 60 }, (_, i) => `${name}${i}`));
    }
    const later = await readAll(c, 'mixed', { follow: false });
    expect(later.data.equals(live.data)).toBe(true);
    for (const kind of [1, 2]) {
      const own = Buffer.concat(
        later.output.filter((o) => o.kind === kind).map(({ data }) => data),
      );
      const alone = await readAll(c, 'mixed', { stream: kind });
      expect(alone.data.equals(own)).toBe(true);
    }
    let merged = 0;
    for (const piece of later.output) {
      expect(Number(piece.mergedOffset)).toBe(merged);
      merged += piece.data.length;
    }
    expect(merged).toBe(later.exec.stdoutSize + later.exec.stderrSize);
    for (const from of [1, 5, 333, merged - 1, merged]) {
      const { data } = await readAll(c, 'mixed', { offset: from });
      expect(data.equals(live.data.subarray(from))).toBe(true);
    }
  });

  it('does not grow and holds back nobody when one reader stops reading', async () => {
    await startExec(c, 'flood', sh('head -c 20000000 /dev/zero'));
    const slow = await sandbox.connect();
    slow.socket.pause();
    for (let i = 0; i < 20; i++) slow.request(T.READ, readBody('flood', { window: 0xffffffff }));
    const { data } = await readAll(c, 'flood');
    expect(data.length).toBe(20_000_000);
    for (let i = 0; i < 20; i++)
      expect((await run(c, `other-${i}`, sh('echo hi'))).data.toString()).toBe('hi\n');
    const figures = await c.request(T.FIGURES).expect(T.FIGURES_ARE);
    const values = new Map<number, bigint>();
    for (let n = figures.u16(); n > 0; n--) values.set(figures.u16(), figures.u64());
    if (target === 'all') expect(Number(values.get(13))).toBeLessThan(4 << 20);
    expect(values.get(12)).toBe(0n);
    slow.socket.resume();
  });

  it('sends no more than the credit given', async () => {
    await run(c, 'credit', sh('head -c 100000 /dev/zero'));
    const exchange = c.request(T.READ, readBody('credit', { window: 1000 }));
    expect(outputOf(await exchange.expect(T.OUTPUT)).data.length).toBe(1000);
    await c.request(T.STATE, new Body().bytes('credit')).expect(T.EXEC);
    exchange.send(T.CREDIT, new Body().u32(500));
    expect(outputOf(await exchange.expect(T.OUTPUT)).data.length).toBe(500);
    exchange.send(T.CLOSE);
    await exchange.expect(T.CLOSED);
  });

  it('runs on when its client is killed in the middle of the output', async () => {
    const script = 'i=0; while [ $i -lt 200 ]; do echo line $i; sleep 0.005; i=$((i+1)); done';
    const doomed = await sandbox.connect();
    await startExec(doomed, 'orphan', sh(script));
    const exchange = doomed.request(T.READ, readBody('orphan', {}));
    const first = outputOf(await exchange.expect(T.OUTPUT)).data;
    await doomed.close();
    const rest = await readAll(c, 'orphan', { offset: first.length });
    expect(Buffer.concat([first, rest.data]).equals(reference(script.replace('0.005', '0')))).toBe(
      true,
    );
    expect(rest.exec.code).toBe(0);
  });

  it('frees acknowledged output and says GONE for it', async () => {
    await startExec(c, 'acked', sh('head -c 8000000 /dev/urandom; sleep 100'));
    await eventually(async () => (await stateOf(c, 'acked')).stdoutSize === 8_000_000 || undefined);
    const [folder] = readdirSync(sandbox.spool);
    const data = () => {
      const name = readdirSync(join(sandbox.spool, folder as string)).find((f) => f.endsWith('.1'));
      return name ? statSync(join(sandbox.spool, folder as string, name)).blocks * 512 : 0;
    };
    const before = await readAll(c, 'acked', { offset: 6_000_000, follow: false });
    expect(data()).toBeGreaterThanOrEqual(8_000_000);
    await c.request(T.ACK, new Body().bytes('acked').u64(6_000_000)).expect(T.OK);
    expect(data()).toBeLessThan(3_000_000);
    for (const stream of [0, 1])
      await expect(readAll(c, 'acked', { stream, follow: false })).rejects.toMatchObject({
        code: E.GONE,
        detail: 6_000_000n,
      });
    const after = await readAll(c, 'acked', { offset: 6_000_000, follow: false });
    expect(after.data.equals(before.data)).toBe(true);
    const tooMuch = c.request(T.ACK, new Body().bytes('acked').u64(9_000_000));
    await expect(tooMuch.expect(T.OK)).rejects.toMatchObject({ code: E.RANGE, detail: 8_000_000n });
    await c.request(T.SIGNAL, new Body().bytes('acked').u32(9)).expect(T.OK);
    await readAll(c, 'acked', { offset: 8_000_000 });
    await c.request(T.ACK, new Body().bytes('acked').u64(8_000_000)).expect(T.OK);
    expect(data()).toBe(0);
    expect((await stateOf(c, 'acked')).code).toBe(9);
  });
});

const asRoot = skipUnless(process.getuid?.() === 0, 'needs root');
asRoot(
  'waits when the disk is full and loses nothing (needs root to mount)',
  async () => {
    const sandbox = new Sandbox(builds[0]?.[2] as string);
    mkdirSync(sandbox.spool);
    const tool = (name: string, ...args: string[]) =>
      expect(spawnSync(name, args, { encoding: 'utf8' })).toMatchObject({ status: 0 });
    tool('mount', '-t', 'tmpfs', '-o', 'size=2m', 'vmux-test', sandbox.spool);
    try {
      const c = await sandbox.start();
      const script = `awk 'BEGIN { for (i = 0; i < 800000; i++) print i }'`;
      await startExec(c, 'full', sh(script));
      let size = -1;
      await eventually(async () => {
        const now = (await stateOf(c, 'full')).stdoutSize;
        const stuck = now === size && now > 1_000_000;
        size = now;
        await sleep(100);
        return stuck || undefined;
      });
      expect((await stateOf(c, 'full')).state).toBe(state.running);
      const pieces: Buffer[] = [];
      const exchange = c.request(T.READ, readBody('full', {}));
      for (let offset = 0; ; ) {
        const frame = await exchange.next();
        if (frame.type === T.EXEC) {
          expect(execOf(frame.body)).toMatchObject({ state: state.exited, code: 0 });
          break;
        }
        const { data } = outputOf(frame.body);
        pieces.push(data);
        offset += data.length;
        exchange.send(T.CREDIT, new Body().u32(data.length));
        await c.request(T.ACK, new Body().bytes('full').u64(offset)).expect(T.OK);
      }
      expect(sha(Buffer.concat(pieces))).toBe(sha(reference(script)));
    } finally {
      await sandbox.kill('SIGKILL');
      tool('umount', sandbox.spool);
      await sandbox.end();
    }
  },
  60_000,
);
