import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { skipUnless } from '@vmux/testing';
import { Body, Bytes } from './bytes';
import { type Connection, E, type Exchange, T } from './client';
import { builds, eventually, make, Sandbox } from './harness';

const EVERYTHING = 0xffff_ffff_ffff_ffffn;

/** DATA until OK, giving credit back. */
async function collect(exchange: Exchange): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (;;) {
    const frame = await exchange.next();
    if (frame.type === T.OK) return Buffer.concat(parts);
    const part = frame.body.bytes();
    parts.push(part);
    exchange.send(T.CREDIT, new Body().u32(part.length));
  }
}

/** Sends all within the credit given, then END; the value of OK. */
async function upload(exchange: Exchange, data: Buffer): Promise<number> {
  let credit = (await exchange.expect(T.ACCEPTED)).u32();
  for (let offset = 0; offset < data.length; ) {
    while (credit === 0) credit += (await exchange.expect(T.CREDIT)).u32();
    const part = data.subarray(offset, offset + Math.min(credit, 65536));
    exchange.send(T.DATA, new Body().bytes(part));
    credit -= part.length;
    offset += part.length;
  }
  exchange.send(T.END);
  for (;;) {
    const frame = await exchange.next();
    if (frame.type === T.OK) return Number(frame.body.u64());
  }
}

function entries(data: Buffer) {
  const bytes = new Bytes(data);
  const found = [];
  while (bytes.left > 0)
    found.push({
      type: String.fromCharCode(bytes.u8()),
      mode: bytes.u32(),
      uid: bytes.u32(),
      gid: bytes.u32(),
      size: Number(bytes.u64()),
      mtimeUs: bytes.u64(),
      name: bytes.bytes().toString(),
      target: bytes.bytes().toString(),
    });
  return found;
}

describe.each(builds)('files and archives (%s)', (_name, target, binary) => {
  let sandbox: Sandbox;
  let c: Connection;
  let dir: string;
  beforeAll(() => make(target), 120_000);
  beforeEach(async () => {
    sandbox = new Sandbox(binary);
    c = await sandbox.start();
    dir = mkdtempSync(join(tmpdir(), 'vmux-files-'));
  });
  afterEach(async () => {
    rmSync(dir, { recursive: true, force: true });
    await sandbox.end();
  });

  const at = (path: string) => new Body().bytes('').bytes(path);
  const write = (path: string, data: Buffer, mode = 0xffffffff, parents = 0) =>
    upload(c.request(T.FILE_WRITE, at(path).u32(mode).u8(parents)), data);
  const read = (path: string, offset = 0, length: number | bigint = EVERYTHING) =>
    collect(c.request(T.FILE_READ, at(path).u64(offset).u64(length).u32(100_000)));
  const tarIn = (path: string, archive: Buffer, flags = 0) =>
    upload(c.request(T.TAR_IN, at(path).u8(flags)), archive);
  const tarOut = (path: string, flags = 0, excluded: string[] = []) => {
    const body = at(path).u8(flags).u16(excluded.length);
    for (const name of excluded) body.bytes(name);
    return collect(c.request(T.TAR_OUT, body.u32(200_000)));
  };
  const tar = (...args: string[]) => {
    const done = spawnSync('tar', args, { maxBuffer: 1 << 26 });
    if (done.status !== 0) throw new Error(done.stderr.toString());
    return done.stdout;
  };

  it('writes and reads back any bytes, whole and in part', async () => {
    const data = Buffer.from(Array.from({ length: 3_000_001 }, (_, i) => (i * 31) % 251));
    expect(await write(`${dir}/a/b/file`, data, 0o640, 1)).toBe(data.length);
    expect(statSync(`${dir}/a/b/file`).mode & 0o7777).toBe(0o640);
    expect((await read(`${dir}/a/b/file`)).equals(data)).toBe(true);
    expect((await read(`${dir}/a/b/file`, 1_000_000, 7)).equals(data.subarray(1e6, 1e6 + 7))).toBe(
      true,
    );
    expect(await write(`${dir}/empty`, Buffer.alloc(0))).toBe(0);
    expect((await read(`${dir}/empty`)).length).toBe(0);
  });

  it('replaces atomically: an upload that is abandoned leaves the old file and nothing else', async () => {
    writeFileSync(`${dir}/file`, 'old', { mode: 0o600 });
    const exchange = c.request(T.FILE_WRITE, at(`${dir}/file`).u32(0xffffffff).u8(0));
    await exchange.expect(T.ACCEPTED);
    exchange.send(T.DATA, new Body().bytes('half of the new'));
    await eventually(() => readdirSync(dir).length === 2 || undefined);
    expect(readFileSync(`${dir}/file`, 'utf8')).toBe('old');
    exchange.send(T.CLOSE);
    for (let frame = await exchange.next(); frame.type !== T.CLOSED; )
      frame = await exchange.next();
    await eventually(() => readdirSync(dir).length === 1 || undefined);
    expect(readFileSync(`${dir}/file`, 'utf8')).toBe('old');
    await write(`${dir}/file`, Buffer.from('new'));
    expect([readFileSync(`${dir}/file`, 'utf8'), statSync(`${dir}/file`).mode & 0o777]).toEqual([
      'new',
      0o600,
    ]);
    writeFileSync(`${dir}/victim`, 'untouched');
    symlinkSync(`${dir}/victim`, `${dir}/link`);
    await write(`${dir}/link`, Buffer.from('x'));
    expect(lstatSync(`${dir}/link`).isFile()).toBe(true);
    expect(readFileSync(`${dir}/victim`, 'utf8')).toBe('untouched');
  });

  it('stats, lists, makes and removes', async () => {
    await collect(c.request(T.FILE_MKDIR, at(`${dir}/x/y`).u32(0o750).u8(1)));
    for (let i = 0; i < 500; i++) writeFileSync(`${dir}/x/f${i}`, 'z'.repeat(i));
    symlinkSync('f1', `${dir}/x/link`);
    const list = entries(await collect(c.request(T.FILE_LIST, at(`${dir}/x`).u32(5000))));
    expect(list).toHaveLength(502);
    expect(list.find(({ name }) => name === 'f321')).toMatchObject({ type: 'f', size: 321 });
    expect(list.find(({ name }) => name === 'y')).toMatchObject({ type: 'd', mode: 0o750 });
    expect(list.find(({ name }) => name === 'link')).toMatchObject({ type: 'l', target: 'f1' });
    const stat = (path: string, follow: number) =>
      collect(c.request(T.FILE_STAT, at(path).u8(follow).u32(9000))).then(entries);
    expect(await stat(`${dir}/x/link`, 0)).toMatchObject([{ type: 'l', name: 'link' }]);
    expect(await stat(`${dir}/x/link`, 1)).toMatchObject([{ type: 'f', size: 1 }]);
    expect(await stat('/', 0)).toMatchObject([{ type: 'd' }]);
    const remove = (path: string, flags: number) =>
      collect(c.request(T.FILE_REMOVE, at(path).u8(flags)));
    await expect(remove(`${dir}/x`, 0)).rejects.toMatchObject({ code: E.SYSTEM, errno: 39 });
    await expect(remove(`${dir}/none`, 0)).rejects.toMatchObject({ errno: 2 });
    await remove(`${dir}/none`, 2);
    mkdirSync(`${dir}/x/y/deep/deeper`, { recursive: true });
    symlinkSync(dir, `${dir}/x/y/deep/up`);
    writeFileSync(`${dir}/kept`, '');
    await remove(`${dir}/x`, 1);
    expect(readdirSync(dir)).toEqual(['kept']);
  });

  it('refuses what is no file, no absolute path, or a way to its own descriptors', async () => {
    await expect(read(dir)).rejects.toMatchObject({ errno: 21 });
    await expect(read('/dev/zero')).rejects.toMatchObject({ code: E.INVALID });
    await expect(read('relative')).rejects.toMatchObject({ code: E.INVALID });
    const magic = `/proc/${sandbox.process?.pid}/root/etc/passwd`;
    await expect(read(magic)).rejects.toMatchObject({ code: E.SYSTEM });
    await expect(read('/proc/self/fd/0')).rejects.toMatchObject({ errno: 40 });
    await expect(write('/', Buffer.from('x'))).rejects.toMatchObject({ code: E.SYSTEM });
    await expect(write(`${dir}/a/..`, Buffer.from('x'))).rejects.toMatchObject({ code: E.SYSTEM });
  });

  it('takes a tree out and in again unchanged, as GNU tar sees it', async () => {
    const long = `${'l'.repeat(120)}/${'m'.repeat(130)}`;
    mkdirSync(`${dir}/src/${long}`, { recursive: true });
    writeFileSync(`${dir}/src/${long}/${'n'.repeat(90)}`, 'deep');
    writeFileSync(`${dir}/src/bytes`, Buffer.alloc(700_001, 'xyz\0'), { mode: 0o750 });
    writeFileSync(`${dir}/src/Ünïcode ✓`, '');
    mkdirSync(`${dir}/src/read-only`);
    writeFileSync(`${dir}/src/read-only/inside`, 'x');
    chmodSync(`${dir}/src/read-only`, 0o555);
    symlinkSync('t'.repeat(150), `${dir}/src/long-link`);
    mkdirSync(`${dir}/src/skipped`);
    writeFileSync(`${dir}/src/skipped/x`, '');
    const archive = await tarOut(`${dir}/src`, 1, ['skipped']);
    writeFileSync(`${dir}/archive`, archive);
    mkdirSync(`${dir}/by-tar`);
    tar('-xpf', `${dir}/archive`, '-C', `${dir}/by-tar`);
    expect(await tarIn(`${dir}/by-us`, archive)).toBe(8);
    rmSync(`${dir}/src/skipped`, { recursive: true });
    const listing = (root: string) =>
      spawnSync('find', ['.', '-mindepth', '1', '-printf', '%p %y %m %s %T@ %l\n'], { cwd: root })
        .stdout.toString()
        .split('\n')
        .map((line) => line.replace(/^(\S+ d \d+) \d+/, '$1'))
        .sort();
    expect(listing(`${dir}/by-us`)).toEqual(listing(`${dir}/src`));
    expect(listing(`${dir}/by-tar`)).toEqual(listing(`${dir}/src`));
    expect(spawnSync('diff', ['-r', '--no-dereference', 'src', 'by-us'], { cwd: dir }).status).toBe(
      0,
    );
    const gnu = tar('-c', '--format=gnu', '-C', `${dir}/src`, '.');
    await tarIn(`${dir}/from-gnu`, gnu);
    expect(listing(`${dir}/from-gnu`).map((l) => l.replace(/\.\d+ /, ' '))).toEqual(
      listing(`${dir}/src`).map((l) => l.replace(/\.\d+ /, ' ')),
    );
    const one = await tarOut(`${dir}/src/bytes`);
    await tarIn(`${dir}/one`, one);
    expect(readdirSync(`${dir}/one`)).toEqual(['bytes']);
  });

  describe('hostile archives', () => {
    const header = (name: string, type: string, size = 0, link = '', mode = 0o644) => {
      const block = Buffer.alloc(512);
      block.write(name, 0);
      block.write(`${mode.toString(8).padStart(7, '0')}\0`, 100);
      block.write('0000000\0'.repeat(2), 108);
      block.write(`${size.toString(8).padStart(11, '0')}\0`, 124);
      block.write('00000000000\0', 136);
      block.write('        ', 148);
      block.write(type, 156);
      block.write(link, 157);
      block.write('ustar\0', 257);
      block.write('00', 263);
      const sum = block.reduce((total, byte) => total + byte, 0);
      block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
      return block;
    };
    const file = (name: string, text: string, mode = 0o644) => {
      const data = Buffer.alloc(Math.ceil(text.length / 512) * 512);
      data.write(text);
      return Buffer.concat([header(name, '0', text.length, '', mode), data]);
    };
    const archive = (...parts: Buffer[]) => Buffer.concat([...parts, Buffer.alloc(1024)]);
    const refused = (code: number) => expect.objectContaining({ code });

    beforeEach(() => {
      mkdirSync(`${dir}/in`);
      mkdirSync(`${dir}/outside`);
      writeFileSync(`${dir}/outside/victim`, 'untouched');
    });
    afterEach(() => {
      expect(readdirSync(dir).sort()).toEqual(['in', 'outside']);
      expect(readdirSync(`${dir}/outside`)).toEqual(['victim']);
      expect(readFileSync(`${dir}/outside/victim`, 'utf8')).toBe('untouched');
    });

    it('does not leave by .., by a link, or by an absolute name', async () => {
      const tries = [
        archive(file('../outside/new', 'x')),
        archive(file('a/../../outside/new', 'x')),
        archive(header('link', '2', 0, '../outside'), file('link/new', 'x')),
        archive(header('link', '2', 0, `${dir}/outside`), file('link/victim', 'x')),
        archive(header('link', '2', 0, `${dir}/outside`), header('link/sub', '5')),
        archive(header('hard', '1', 0, '../outside/victim'), file('hard', 'x')),
        archive(
          header('link', '2', 0, `${dir}/outside`),
          header('hard', '1', 0, 'link/victim'),
          file('hard', 'x'),
        ),
        archive(header('dir', '2', 0, `${dir}/outside`), header('dir/', '5', 0, '', 0o777)),
      ];
      for (const hostile of tries)
        await expect(tarIn(`${dir}/in`, hostile)).rejects.toEqual(refused(E.UNSAFE));
      await tarIn(`${dir}/in`, archive(file(`${dir}/outside/victim`, 'inside')));
      expect(readFileSync(`${dir}/in${dir}/outside/victim`, 'utf8')).toBe('inside');
    });

    it('replaces links and files instead of writing through them', async () => {
      symlinkSync(`${dir}/outside/victim`, `${dir}/in/file`);
      await tarIn(`${dir}/in`, archive(file('file', 'new')));
      expect(lstatSync(`${dir}/in/file`).isFile()).toBe(true);
      const link = header('file', '2', 0, `${dir}/outside/victim`);
      await tarIn(`${dir}/in`, archive(link, file('file', 'newer')));
      expect(readFileSync(`${dir}/in/file`, 'utf8')).toBe('newer');
    });

    it('makes no device and sets no setuid bit unless asked', async () => {
      for (const type of ['3', '4'])
        await expect(tarIn(`${dir}/in`, archive(header('dev', type)))).rejects.toEqual(
          refused(E.UNSAFE),
        );
      await tarIn(`${dir}/in`, archive(file('su', 'x', 0o6755)));
      expect(statSync(`${dir}/in/su`).mode & 0o7777).toBe(0o755);
      await tarIn(`${dir}/in`, archive(file('su', 'x', 0o6755)), 2);
      expect(statSync(`${dir}/in/su`).mode & 0o7777).toBe(0o6755);
    });

    it('refuses what is cut off, no archive, or lies about sizes', async () => {
      const pax = (text: string) => {
        const data = Buffer.alloc(512);
        data.write(text);
        return Buffer.concat([header('x', 'x', text.length), data]);
      };
      for (const broken of [
        Buffer.alloc(100, 'x'),
        Buffer.alloc(4096, 'x'),
        archive(file('a', 'x'.repeat(2000))).subarray(0, 1000),
        archive(pax('99999 path=a\n'), file('a', 'x')),
        archive(pax('12 path=a\n'), file('a', 'x')),
        archive(pax('0 a=b\n'), file('a', 'x')),
        archive(pax(`25 size=18446744073709551615\n`), file('a', 'x')),
        archive(header('big', 'L', 0o77777777777)),
        file('a', 'no end'),
      ])
        await expect(tarIn(`${dir}/in`, broken)).rejects.toEqual(refused(E.INVALID));
    });

    it('follows links that stay inside, as root trees have them', async () => {
      await tarIn(
        `${dir}/in`,
        archive(
          header('usr/lib/', '5', 0, '', 0o755),
          header('lib', '2', 0, 'usr/lib'),
          header('lib/', '5', 0, '', 0o755),
          file('lib/so', 'x'),
        ),
      );
      expect(readlinkSync(`${dir}/in/lib`)).toBe('usr/lib');
      expect(existsSync(`${dir}/in/usr/lib/so`)).toBe(true);
    });
  });

  const asRoot = skipUnless(process.getuid?.() === 0, 'needs root');
  asRoot('acts as the user asked for (needs root)', async () => {
    writeFileSync(`${dir}/secret`, 'x', { mode: 0o600 });
    chmodSync(dir, 0o777);
    const body = new Body().bytes('nobody').bytes(`${dir}/secret`).u64(0).u64(EVERYTHING);
    await expect(collect(c.request(T.FILE_READ, body.u32(10)))).rejects.toMatchObject({
      errno: 13,
    });
    const own = new Body().bytes('nobody').bytes(`${dir}/own`).u32(0o644).u8(0);
    await upload(c.request(T.FILE_WRITE, own), Buffer.from('x'));
    expect(statSync(`${dir}/own`).uid).toBe(65534);
  });
});
