import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { unpack } from '../src/copy/untar';

afterAll(releaseAll);

interface Raw {
  readonly name: string;
  readonly type?: string;
  readonly mode?: number;
  readonly target?: string;
  readonly content?: string;
}

/** An archive that no honest program would write. */
function tar(...entries: readonly Raw[]): Buffer {
  const blocks = entries.flatMap(
    ({ name, type = '0', mode = 0o644, target = '', content = '' }) => {
      const header = Buffer.alloc(512);
      const octal = (value: number, width: number) => value.toString(8).padStart(width - 1, '0');
      header.write(name, 0);
      header.write(octal(mode, 8), 100);
      header.write(octal(content.length, 12), 124);
      header.write('        ', 148);
      header.write(type, 156);
      header.write(target, 157);
      header.write('ustar\u000000', 257);
      const sum = header.reduce((total, byte) => total + byte, 0);
      header.write(`${octal(sum, 7)}\u0000 `, 148);
      const body = Buffer.alloc(Math.ceil(content.length / 512) * 512);
      body.write(content);
      return [header, body];
    },
  );
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

/** In pieces of any size, as a network has them. */
async function* inPieces(bytes: Buffer, size = 100): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const unpacked = async (archive: Buffer, limits?: Parameters<typeof unpack>[2]) => {
  const base = temporaryDirectory('untar');
  const to = join(base, 'to');
  const done = await unpack(inPieces(archive), to, limits);
  return { base, to, done };
};

describe('an archive from a session', () => {
  it('is unpacked with files, directories, modes and links', async () => {
    const from = temporaryDirectory('tar');
    mkdirSync(join(from, 'a/b'), { recursive: true });
    const long = 'x'.repeat(180);
    writeFileSync(join(from, 'a/b', long), 'content');
    writeFileSync(join(from, 'größe 日本'), 'é'.repeat(3000));
    writeFileSync(join(from, 'run'), '#!', { mode: 0o755 });
    symlinkSync('../run', join(from, 'a/link'));
    for (const format of ['pax', 'gnu']) {
      const archive = execFileSync('tar', ['-c', `--format=${format}`, '-C', from, '.']);
      const { to } = await unpacked(archive);
      expect(readFileSync(join(to, 'a/b', long), 'utf8')).toBe('content');
      expect(readFileSync(join(to, 'größe 日本'), 'utf8')).toBe('é'.repeat(3000));
      expect(lstatSync(join(to, 'run')).mode & 0o777).toBe(0o755);
      expect(readlinkSync(join(to, 'a/link'))).toBe('../run');
    }
  });

  it.each<[string, Raw[]]>([
    ['a path that leads out', [{ name: '../out', content: 'x' }]],
    ['a path that leads out from within', [{ name: 'a/../../out', content: 'x' }]],
    ['an absolute path', [{ name: '/tmp/out', content: 'x' }]],
    ['an absolute link', [{ name: 'l', type: '2', target: '/etc/passwd' }]],
    ['a link that leads out', [{ name: 'a/l', type: '2', target: '../../out' }]],
    ['a link that climbs after a step down', [{ name: 'l', type: '2', target: 'a/../../out' }]],
    ['a hard link', [{ name: 'l', type: '1', target: '../out' }]],
    ['a device', [{ name: 'd', type: '3' }]],
    ['a pipe', [{ name: 'p', type: '6' }]],
    [
      'a file in the place of a directory',
      [
        { name: 'd/', type: '5' },
        { name: 'd', content: 'x' },
      ],
    ],
  ])('is refused with %s', async (_, entries) => {
    const base = temporaryDirectory('untar');
    await expect(unpack(inPieces(tar(...entries)), join(base, 'to'))).rejects.toThrow('not safe');
    expect(existsSync(join(base, 'out'))).toBe(false);
  });

  it('cannot write through a link that it brings along or that is there', async () => {
    const bringsAlong = tar(
      { name: 'l', type: '2', target: 'inside' },
      { name: 'l/file', content: 'x' },
    );
    const { to } = await unpacked(tar({ name: 'a', content: 'a' }));
    await expect(unpack(inPieces(bringsAlong), to)).rejects.toThrow('not safe');
    const elsewhere = temporaryDirectory('elsewhere');
    writeFileSync(join(elsewhere, 'precious'), 'kept');
    symlinkSync(elsewhere, join(to, 'door'));
    await expect(
      unpack(inPieces(tar({ name: 'door/precious', content: 'x' })), to),
    ).rejects.toThrow('not safe');
    symlinkSync(join(elsewhere, 'precious'), join(to, 'file'));
    await unpack(inPieces(tar({ name: 'file', content: 'new' })), to);
    expect(readFileSync(join(elsewhere, 'precious'), 'utf8')).toBe('kept');
    expect(lstatSync(join(to, 'file')).isSymbolicLink()).toBe(false);
    expect(readFileSync(join(to, 'file'), 'utf8')).toBe('new');
  });

  it('leaves setuid, setgid and sticky bits behind', async () => {
    const { to } = await unpacked(tar({ name: 'sh', mode: 0o6755, content: 'x' }));
    expect(lstatSync(join(to, 'sh')).mode & 0o7777).toBe(0o755);
  });

  it('ends at the limits of number and size', async () => {
    const many = tar(...Array.from({ length: 20 }, (_, at) => ({ name: `f${at}`, content: 'x' })));
    await expect(unpacked(many, { maxEntries: 10, maxBytes: 1e9 })).rejects.toThrow('more than 10');
    const big = tar({ name: 'big', content: 'x'.repeat(5000) });
    await expect(unpacked(big, { maxEntries: 10, maxBytes: 4999 })).rejects.toThrow('MiB');
  });

  it.each([
    ['a directory', '5'],
    ['a link', '2'],
    ['a device', '3'],
  ])('refuses %s that says it has content, without reading it', async (_what, type) => {
    const bytes = tar({ name: 'd', type, target: 'x', content: 'y'.repeat(600) });
    let taken = 0;
    async function* source() {
      for (let at = 0; at < bytes.length; at += 512) {
        taken += 1;
        yield bytes.subarray(at, at + 512);
      }
    }
    const into = join(temporaryDirectory('untar'), 'into');
    await expect(unpack(source(), into)).rejects.toThrow(/damaged/);
    expect(taken).toBe(1);
  });

  it('is not taken for whole when it is cut, and not for an archive when it is none', async () => {
    const whole = tar({ name: 'a', content: 'x'.repeat(2000) });
    for (const end of [100, 512, 1500, whole.length - 1024])
      await expect(unpacked(whole.subarray(0, end))).rejects.toThrow('damaged');
    await expect(unpacked(Buffer.alloc(4096, 'x'))).rejects.toThrow('damaged');
    const readable = Readable.from(inPieces(whole, 7));
    const to = join(temporaryDirectory('untar'), 'to');
    expect(await unpack(readable, to)).toEqual({ entries: 1, bytes: 2000 });
  });
});
