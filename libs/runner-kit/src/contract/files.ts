import { createHash, randomBytes } from 'node:crypto';
import { type Bench, run, shell, until } from './bench';

async function collect(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

/** Answers each line with the same line; says its port when it listens. */
const echoServer = (port: number) => `perl -e '
  use IO::Socket::INET;
  $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => ${port}, Listen => 5, ReuseAddr => 1) or die;
  while ($c = $s->accept) { while (<$c>) { print $c $_; $c->flush } close $c }'`;

export function filesContract(bench: Bench): void {
  describe('files and ports', () => {
    it('writes, reads, lists and removes files', async () => {
      const { client } = await bench.sandbox();
      const content = randomBytes(3_000_001);
      await client.files.write('/tmp/a/b/file', [content], { makeParents: true, mode: 0o640 });
      expect((await collect(client.files.read('/tmp/a/b/file'))).equals(content)).toBe(true);
      const part = await collect(client.files.read('/tmp/a/b/file', { offset: 7, length: 5 }));
      expect(part).toEqual(content.subarray(7, 12));
      const stat = await client.files.stat('/tmp/a/b/file');
      expect(stat).toMatchObject({ type: 'file', size: content.length });
      expect(stat.mode & 0o777).toBe(0o640);
      await run(client, shell('ln -s file /tmp/a/b/link; mkdir /tmp/a/b/dir'));
      const names: string[] = [];
      for await (const entry of client.files.list('/tmp/a/b'))
        names.push(`${entry.type} ${entry.name}`);
      expect(names.sort()).toEqual(['directory dir', 'file file', 'link link']);
      await client.files.remove('/tmp/a', { recursive: true });
      await expect(client.files.stat('/tmp/a')).rejects.toMatchObject({ errno: 2 });
      await client.files.remove('/tmp/a', { missingIsFine: true });
    });

    it('leaves a file as it was when a write is given up', async () => {
      const { client } = await bench.sandbox();
      await client.files.write('/tmp/kept', [Buffer.from('old')]);
      const broken = async function* () {
        yield Buffer.from('new');
        throw new Error('the upload broke');
      };
      await expect(client.files.write('/tmp/kept', broken())).rejects.toThrow('the upload broke');
      expect((await collect(client.files.read('/tmp/kept'))).toString()).toBe('old');
    });

    it('packs a directory in one sandbox and unpacks it in another', async () => {
      const [from, to] = [await bench.sandbox(), await bench.sandbox()];
      const script =
        'mkdir -p /tmp/d/sub && cd /tmp/d && head -c 300000 /dev/urandom > sub/r && ln -s sub/r l && chmod 741 sub/r';
      await run(from.client, shell(script));
      await to.client.files.tarIn('/tmp/copy', from.client.files.tarOut('/tmp/d'));
      const look = (at: string) =>
        shell(`cd ${at} && find . -printf '%p %m %l\\n' | sort && sha256sum sub/r`);
      const [left, right] = [
        await run(from.client, look('/tmp/d')),
        await run(to.client, look('/tmp/copy')),
      ];
      expect(left.stdout.length).toBeGreaterThan(100);
      expect(right.stdout.toString()).toBe(left.stdout.toString());
    });

    it('notices a listening port and carries bytes to it', async () => {
      const { client } = await bench.sandbox();
      const server = shell(echoServer(8123));
      await client.start(server);
      for await (const item of client.ports())
        if (item.kind === 'port' && item.notice.port === 8123) {
          expect(item.notice).toMatchObject({ open: true, loopbackOnly: true });
          break;
        }
      const tunnel = await client.dial(8123);
      const line = `${randomBytes(300_000).toString('hex')}\n`;
      tunnel.end(line);
      const echoed = createHash('sha256')
        .update(await collect(tunnel))
        .digest('hex');
      expect(echoed).toBe(createHash('sha256').update(line).digest('hex'));
      await client.cancel(server.execId, 0);
      await until(() =>
        client.dial(8123).then(
          // It may be reset while it is being closed.
          (open) => void open.on('error', () => undefined).destroy(),
          (fault: { reason?: string }) => fault.reason === 'system',
        ),
      );
    });
  });
}
