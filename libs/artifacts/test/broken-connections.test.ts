import { randomBytes } from 'node:crypto';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { type ArtifactStore, digestOf, openArtifacts } from '@vmux/artifacts';
import { describeUnless, releaseAll, releaseLater } from '@vmux/testing';
import { noMoto, openMoto } from './servers';

/** Passes bytes on and breaks every connection that has carried so many from the server or to it. */
class Breaking {
  answerBytes = Number.POSITIVE_INFINITY;
  requestBytes = Number.POSITIVE_INFINITY;
  broken = 0;
  onBreak: () => void = () => undefined;
  private readonly server: Server;

  constructor(target: number) {
    this.server = createServer((client) => {
      const server = dial(target, '127.0.0.1');
      this.pass(client, server, () => this.requestBytes);
      this.pass(server, client, () => this.answerBytes);
    });
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    releaseLater(async () => void this.server.close());
    return (this.server.address() as { readonly port: number }).port;
  }

  private pass(from: Socket, to: Socket, most: () => number): void {
    let carried = 0;
    from.on('error', () => to.destroy()).on('close', () => to.destroy());
    from.on('data', (data) => {
      carried += data.length;
      if (carried <= most()) return void to.write(data);
      const sent = data.length - (carried - most());
      this.broken += 1;
      this.onBreak();
      to.write(data.subarray(0, sent), () => to.destroy());
      from.destroy();
    });
  }
}

// s3rver keeps what was cut off as if it were whole.
describeUnless(noMoto === '', noMoto)('a bucket behind connections that break', () => {
  const content = randomBytes(3_000_000);
  const digest = digestOf(content);
  let breaking: Breaking;
  let store: ArtifactStore;
  const source = async function* () {
    yield content;
  };
  const put = () => store.put(digest, source(), { owner: 'ada', maxBytes: 1e7 });

  beforeAll(async () => {
    const { port } = await openMoto();
    breaking = new Breaking(port);
    const through = await breaking.listen();
    store = await openArtifacts(`s3://vmux?region=us-east-1&endpoint=http://127.0.0.1:${through}`);
  }, 90_000);
  afterAll(releaseAll);

  it('takes a bundle again that was cut on the way there', async () => {
    breaking.requestBytes = 1_000_000;
    breaking.onBreak = () => {
      if (breaking.broken === 2) breaking.requestBytes = Number.POSITIVE_INFINITY;
    };
    expect(await put()).toMatchObject({ bytes: content.length });
    expect(breaking.broken).toBe(2);
  }, 30_000);

  it('goes on with a bundle where it was cut on the way back, and fails when it never ends', async () => {
    const before = breaking.broken;
    breaking.answerBytes = 1_000_000;
    const { bytes, stream } = await store.open(digest);
    expect(bytes).toBe(content.length);
    expect((await buffer(stream)).equals(content)).toBe(true);
    expect(breaking.broken - before).toBeGreaterThanOrEqual(2);
    breaking.answerBytes = 100_000;
    await expect(store.open(digest).then(({ stream: cut }) => buffer(cut))).rejects.toThrow();
    breaking.answerBytes = Number.POSITIVE_INFINITY;
  }, 30_000);

  it('reads a piece whole that was cut', async () => {
    const piece = randomBytes(1_500_000);
    const { digest: name } = await store.chunks.put(piece);
    breaking.answerBytes = 600_000;
    expect((await store.chunks.get(name)).equals(piece)).toBe(true);
    breaking.answerBytes = Number.POSITIVE_INFINITY;
  }, 30_000);
});
