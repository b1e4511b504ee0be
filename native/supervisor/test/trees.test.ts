import { spawnSync } from 'node:child_process';
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { Body, Bytes } from './bytes';
import { type Connection, E, type Exchange, T } from './client';
import { builds, eventually, make, Sandbox, sh, startBody, startExec, stateOf } from './harness';

async function collect(exchange: Exchange, input?: Buffer): Promise<Bytes> {
  const parts: Buffer[] = [];
  let credit = 0;
  let sent = 0;
  for (;;) {
    const frame = await exchange.next();
    if (frame.type === T.OK) return new Bytes(Buffer.concat(parts));
    if (frame.type === T.DATA) {
      const part = frame.body.bytes();
      parts.push(part);
      exchange.send(T.CREDIT, new Body().u32(part.length));
      continue;
    }
    credit += frame.body.u32();
    while (input && credit > 0 && sent < input.length) {
      const part = input.subarray(sent, sent + Math.min(credit, 65_536));
      exchange.send(T.DATA, new Body().bytes(part));
      credit -= part.length;
      sent += part.length;
    }
    if (input && sent === input.length) {
      sent += 1;
      exchange.send(T.END);
    }
  }
}

interface Entry {
  type: string;
  mode?: number;
  size?: number;
  mtimeNs?: bigint;
  path: string;
  target?: string;
  attributes?: [name: string, value: string][];
  /** Of files. */
  pieces?: [offset: number, bytes: string | Buffer][];
}

function packed(entries: readonly Entry[], end = 'z'): Buffer {
  const parts = entries.map((e) => {
    const body = new Body().u8(e.type.charCodeAt(0));
    body
      .u32(e.mode ?? 0o644)
      .u32(0)
      .u32(0)
      .u64(e.size ?? 0)
      .u64(e.mtimeNs ?? 1_500_000_000_000_000_123n);
    body
      .bytes(e.path)
      .bytes(e.target ?? '')
      .u16(e.attributes?.length ?? 0);
    for (const [name, value] of e.attributes ?? []) body.bytes(name).bytes(value);
    for (const [offset, bytes] of e.pieces ?? []) {
      const data = Buffer.from(bytes as Buffer);
      body.u32(data.length).u64(offset);
      body.raw(data);
    }
    if (e.type === 'f') body.u32(0);
    return body.toBuffer();
  });
  return Buffer.concat([...parts, Buffer.from(end)]);
}

describe.each(builds)('trees (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  let dir: string;
  /** As the supervisor names it. */
  let here: string;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
    dir = mkdtempSync('/tmp/vmux-trees-');
    here = dir.slice(1);
  });
  afterEach(async () => {
    await sandbox.end();
    rmSync(dir, { recursive: true, force: true });
  });

  /** Of this machine only the test's own directory is looked at. */
  const scan = async (leftOut: string[] = [], whileItWaits = async () => {}) => {
    const others = [
      ...readdirSync('/').filter((name) => name !== 'tmp'),
      ...readdirSync('/tmp')
        .map((name) => `tmp/${name}`)
        .filter((name) => name !== here),
    ].slice(0, 250 - leftOut.length);
    const body = new Body().u64(0).u16(others.length + leftOut.length);
    for (const name of [...leftOut, ...others]) body.bytes(name);
    const exchange = c.request(T.SCAN, body.u32(0));
    await whileItWaits();
    exchange.send(T.CREDIT, new Body().u32(1 << 20));
    const bytes = await collect(exchange);
    bytes.u64();
    bytes.u64();
    bytes.u8();
    const found = [];
    for (let type = bytes.u8(); type !== 0x7a; type = bytes.u8()) {
      const entry = {
        type: String.fromCharCode(type),
        flags: bytes.u8(),
        mode: bytes.u32(),
        owner: [bytes.u32(), bytes.u32()],
        links: bytes.u32(),
        size: Number(bytes.u64()),
        mtimeNs: bytes.u64(),
        ctimeNs: bytes.u64(),
        dev: bytes.u64(),
        ino: bytes.u64(),
        path: bytes.bytes().toString(),
        target: bytes.bytes().toString(),
        attributes: [] as [string, string][],
      };
      for (let n = bytes.u16(); n > 0; n--)
        entry.attributes.push([bytes.bytes().toString(), bytes.bytes().toString()]);
      found.push(entry);
    }
    bytes.u64();
    expect(bytes.left).toBe(0);
    return found.filter(({ path }) => path.startsWith(here));
  };

  const readMany = async (paths: string[]) => {
    const list = new Body();
    for (const path of paths) list.bytes(path);
    const bytes = await collect(c.request(T.READ_MANY, new Body().u32(1 << 20)), list.toBuffer());
    const items = [];
    while (bytes.left > 0) {
      const kind = String.fromCharCode(bytes.u8());
      if (kind === 'X') items.push([kind, bytes.u32()]);
      else if (kind === 'D') items.push([kind, Number(bytes.u64()), bytes.bytes().length]);
      else
        items.push([
          kind,
          Number(bytes.u64()),
          bytes.u64() > 0n,
          bytes.u64() > 0n,
          bytes.u64() > 0n,
        ]);
    }
    return items;
  };

  const unpack = (stream: Buffer) => collect(c.request(T.UNPACK), stream);

  it('tells what was changed since it began, in order, and nothing that is left out', async () => {
    // Files are dated by a clock of coarse ticks. What the supervisor starts waits for the next; we do too.
    await new Promise((resolve) => setTimeout(resolve, 20));
    mkdirSync(`${dir}/d`);
    mkdirSync(`${dir}/d.e`);
    writeFileSync(`${dir}/d/f`, 'content', { mode: 0o640 });
    linkSync(`${dir}/d/f`, `${dir}/d/g`);
    symlinkSync('f', `${dir}/d/l`);
    spawnSync('mkfifo', [`${dir}/p`]);
    spawnSync('python3', ['-c', `import os; os.setxattr('${dir}/d/f', 'user.a', b'1')`]);
    mkdirSync(`${dir}/hidden`);
    writeFileSync(`${dir}/hidden/x`, '');
    const found = await scan([`${here}/hidden`]);
    expect(found.map(({ type, path }) => `${type} ${path.slice(here.length)}`)).toEqual([
      'd ',
      'd /d',
      'f /d/f',
      'f /d/g',
      'l /d/l',
      'd /d.e',
      'p /p',
    ]);
    const [, , f, g, l] = found;
    expect(f).toMatchObject({ mode: 0o640, links: 2, size: 7, attributes: [['user.a', '1']] });
    expect([g?.ino, g?.dev]).toEqual([f?.ino, f?.dev]);
    expect(f?.mtimeNs).toBe(statSync(`${dir}/d/f`, { bigint: true }).mtimeNs);
    expect(l).toMatchObject({ target: 'f' });
  });

  it('leaves out what goes while it is looked at', async () => {
    const name = (n: number) => `${dir}/${String(n).padStart(200, '0')}`;
    for (let n = 0; n < 3000; n++) writeFileSync(name(n), '');
    const found = await scan([], async () => {
      // It stands with more than can be on the way, in the middle of an entry.
      await sleep(500);
      for (let n = 0; n < 3000; n++) rmSync(name(n));
    });
    expect(found.length).toBeLessThan(3000);
  });

  it('sends the bytes of many files, without blocks of zeros', async () => {
    writeFileSync(`${dir}/a`, Buffer.alloc(200_000, 7));
    writeFileSync(`${dir}/sparse`, Buffer.alloc(10, 1));
    truncateSync(`${dir}/sparse`, 1_000_000);
    writeFileSync(`${dir}/empty`, '');
    symlinkSync('a', `${dir}/link`);
    const names = ['a', 'none', 'sparse', 'empty', 'link'].map((name) => `${here}/${name}`);
    const begin = (size: number) => ['F', size, true, true, true];
    const end = (size: number) => ['E', size, true, true, true];
    expect(await readMany(names)).toEqual([
      begin(200_000),
      ['D', 0, 65_536],
      ['D', 65_536, 65_536],
      ['D', 131_072, 65_536],
      ['D', 196_608, 3_392],
      end(200_000),
      ['X', 2],
      begin(1_000_000),
      ['D', 0, 65_536],
      end(1_000_000),
      begin(0),
      end(0),
      ['X', expect.any(Number)],
    ]);
    await expect(readMany([`/${here}/a`])).rejects.toMatchObject({ code: E.INVALID });
  });

  it('puts entries back with everything that they are', async () => {
    writeFileSync(`${dir}/gone`, '');
    mkdirSync(`${dir}/was-directory`);
    writeFileSync(`${dir}/was-directory/x`, '');
    mkdirSync(`${dir}/was-file-parent`);
    writeFileSync(`${dir}/shared`, 'old');
    linkSync(`${dir}/shared`, `${dir}/other-name`);
    const time = 1_234_567_890_987_654_321n;
    await unpack(
      packed([
        { type: 'w', path: `${here}/gone` },
        { type: 'w', path: `${here}/never/was` },
        { type: 'd', path: `${here}/d`, mode: 0o1751, mtimeNs: time },
        {
          type: 'f',
          path: `${here}/d/f`,
          mode: 0o4755,
          size: 300_000,
          mtimeNs: time,
          attributes: [['user.a', 'b']],
          pieces: [
            [0, 'begin'],
            [200_000, 'middle'],
          ],
        },
        { type: 'h', path: `${here}/d/h`, target: `${here}/d/f` },
        { type: 'l', path: `${here}/d/l`, target: '/etc/passwd', mtimeNs: time },
        { type: 'f', path: `${here}/new/parent/f`, size: 1, pieces: [[0, 'x']] },
        { type: 'p', path: `${here}/p`, mode: 0o600 },
        { type: 'f', path: `${here}/shared`, size: 3, pieces: [[0, 'new']] },
        { type: 'f', path: `${here}/was-directory`, size: 2, pieces: [[0, 'ok']] },
      ]),
    );
    const f = statSync(`${dir}/d/f`, { bigint: true });
    expect([f.mode & 0o7777n, f.size, f.mtimeNs, f.nlink]).toEqual([0o4755n, 300_000n, time, 2n]);
    expect(f.blocks).toBeLessThan(100n);
    const bytes = readFileSync(`${dir}/d/h`);
    expect([bytes.toString('utf8', 0, 5), bytes.toString('utf8', 200_000, 200_006)]).toEqual([
      'begin',
      'middle',
    ]);
    const d = statSync(`${dir}/d`, { bigint: true });
    expect([d.mode & 0o7777n, d.mtimeNs]).toEqual([0o1751n, time]);
    expect(readlinkSync(`${dir}/d/l`)).toBe('/etc/passwd');
    expect(lstatSync(`${dir}/d/l`, { bigint: true }).mtimeNs).toBe(time);
    expect(lstatSync(`${dir}/p`).isFIFO()).toBe(true);
    expect([existsSync(`${dir}/gone`), readFileSync(`${dir}/was-directory`, 'utf8')]).toEqual([
      false,
      'ok',
    ]);
    // What another name shares is not written through.
    expect([
      readFileSync(`${dir}/shared`, 'utf8'),
      readFileSync(`${dir}/other-name`, 'utf8'),
    ]).toEqual(['new', 'old']);
  });

  it('refuses what leads elsewhere, and what is no checkpoint', async () => {
    mkdirSync(`${dir}/outside`);
    symlinkSync(`${dir}/outside`, `${dir}/link`);
    const file = (path: string): Entry => ({ type: 'f', path, size: 1, pieces: [[0, 'x']] });
    const refused: [Buffer, number][] = [
      [packed([file(`${here}/../escaped`)]), E.UNSAFE],
      [packed([file(`/${here}/absolute`)]), E.UNSAFE],
      [packed([file(`${here}//twice`)]), E.UNSAFE],
      [packed([file(`${here}/./dot`)]), E.UNSAFE],
      [packed([file(`${here}/link/through`)]), E.UNSAFE],
      [packed([{ type: 'd', path: `${here}/link/d` }]), E.UNSAFE],
      [packed([{ type: 'h', path: `${here}/h`, target: `${here}/link/../x` }]), E.UNSAFE],
      [packed([{ type: 'h', path: `${here}/h`, target: `${here}/none` }]), E.SYSTEM],
      [packed([{ type: 'f', path: '' }]), E.UNSAFE],
      [packed([{ type: 'c', path: `${here}/device` }]), E.INVALID],
      [packed([{ ...file(`${here}/far`), pieces: [[1, 'y']] }]), E.INVALID],
      [packed([file(`${here}/cut`)], ''), E.INVALID],
      [packed([file(`${here}/more`)], 'zz'), E.INVALID],
      [packed([{ ...file(`${here}/a`), attributes: [['bad.name', 'x']] }]), E.SYSTEM],
      [Buffer.alloc(0), E.INVALID],
    ];
    for (const [stream, code] of refused)
      await expect(unpack(stream)).rejects.toMatchObject({ code });
    expect(readdirSync(`${dir}/outside`)).toEqual([]);
    expect(existsSync(`${dir}/../escaped`)).toBe(false);
  });

  it('ends every stream with an answer, whatever numbers are in it', async () => {
    const number = fc.oneof(fc.nat(100), fc.constantFrom(2 ** 31, 2 ** 32 - 1));
    const entry = fc.record({
      type: fc.constantFrom('f', 'd', 'l', 'p', 'h', 'w', 'q', 'z'),
      mode: number,
      size: number,
      path: fc.constantFrom(`${here}/a`, `${here}/a/b`, `${here}/c`, `${here}/a`),
      target: fc.constantFrom('', 'x', `${here}/a`),
      pieces: fc.array(fc.tuple(number, fc.string({ maxLength: 20 })), { maxLength: 3 }),
      attributes: fc.array(fc.tuple(fc.constantFrom('user.x', 'y', ''), fc.string()), {
        maxLength: 2,
      }),
    });
    const stream = fc.tuple(fc.array(entry, { maxLength: 6 }), fc.nat(400), fc.boolean());
    await fc.assert(
      fc.asyncProperty(stream, async ([entries, cut, whole]) => {
        const bytes = packed(entries);
        await unpack(whole ? bytes : bytes.subarray(0, cut)).catch((error) => {
          expect([E.INVALID, E.SYSTEM, E.UNSAFE]).toContain(error.code);
        });
      }),
      { numRuns: 60 },
    );
  });

  it('lets everything that it started stand still, threads too, and go on', async () => {
    const threads = `import threading, time, sys
n = [0, 0]
def count(i):
    while True: n[i] += 1; open('${dir}/%d' % i, 'w').write(str(n[i])); time.sleep(0.005)
threading.Thread(target=count, args=(0,)).start(); count(1)`;
    await startExec(c, 'threads', { argv: ['/usr/bin/python3', '-c', threads], env: [] });
    await startExec(c, 'shells', sh(`while :; do echo x >> ${dir}/log; sleep 0.01; done`));
    const sizes = () => [
      existsSync(`${dir}/0`) && readFileSync(`${dir}/0`, 'utf8'),
      existsSync(`${dir}/1`) && readFileSync(`${dir}/1`, 'utf8'),
      existsSync(`${dir}/log`) && statSync(`${dir}/log`).size,
    ];
    await eventually(() => sizes().every(Boolean) || undefined);
    const other = await sandbox.connect();
    const frozen = other.request(T.FREEZE, new Body().u8(0));
    await frozen.expect(T.OK);
    const before = sizes();
    await sleep(300);
    expect(sizes()).toEqual(before);
    // A start waits, a write is refused, a cancel is not undone.
    const late = c.request(T.START, startBody('late', sh(`echo late > ${dir}/late`)));
    const write = new Body().bytes('').bytes(`${dir}/w`).u32(0o644).u8(0);
    await expect(c.request(T.FILE_WRITE, write).expect(T.ACCEPTED)).rejects.toMatchObject({
      code: E.LIMIT,
    });
    await sleep(100);
    expect(existsSync(`${dir}/late`)).toBe(false);
    await other.close();
    await late.expect(T.EXEC);
    await eventually(() => existsSync(`${dir}/late`) || undefined);
    await eventually(() => sizes().every((size, n) => size !== before[n]) || undefined);
  }, 60_000);

  it('holds until it is told to go on, or ends everything as it stands', async () => {
    await startExec(c, 'held', sh(`while :; do echo x >> ${dir}/log; sleep 0.01; done`));
    await eventually(() => existsSync(`${dir}/log`) || undefined);
    const first = await sandbox.connect();
    await first.request(T.FREEZE, new Body().u8(1)).expect(T.OK);
    await first.close();
    const before = statSync(`${dir}/log`).size;
    await sleep(200);
    expect(statSync(`${dir}/log`).size).toBe(before);
    await c.request(T.THAW).expect(T.OK);
    await eventually(() => statSync(`${dir}/log`).size > before || undefined);
    await c.request(T.FREEZE, new Body().u8(1)).expect(T.OK);
    const after = statSync(`${dir}/log`).size;
    await c.request(T.STOP, new Body().u32(0)).expect(T.OK);
    expect((await stateOf(c, 'held')).code).toBe(9);
    expect(statSync(`${dir}/log`).size).toBe(after);
  }, 60_000);
});
