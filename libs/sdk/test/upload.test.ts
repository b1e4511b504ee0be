import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { freePort, releaseAll, releaseLater } from '@vmux/testing';
import {
  type Gateway,
  type Stack,
  startGateway,
  startService,
  startStack,
} from '../../../test/support/stack';
import { Vmux } from '../src/index';

const MB = 1_000_000;
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** The way to the gateway: counts what clients send, and says so as it goes by. */
class Way {
  sentBytes = 0;
  onSent: (cut: () => void) => void = () => undefined;
  private readonly server = createServer((near) => this.carry(near));

  constructor(private readonly target: () => number) {}

  async open(): Promise<string> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    releaseLater(() => void this.server.close());
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private carry(near: Socket): void {
    const far = connect(this.target(), '127.0.0.1');
    const cut = () => {
      near.resetAndDestroy();
      far.destroy();
    };
    near.on('data', (data) => {
      this.sentBytes += data.length;
      this.onSent(cut);
    });
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) socket.on('error', cut).on('close', cut);
  }
}

describe('an upload', () => {
  let stack: Stack;
  let gateway: Gateway;
  let port: number;
  let way: Way;
  let vmux: Vmux;
  const serve = async () => {
    gateway = await startGateway(stack, 'gateway', { VMUX_PORT: String(port) });
  };
  const left = () => {
    const uploads = join(stack.dir, 'artifacts', 'uploads');
    return readdirSync(uploads).flatMap((owner) => readdirSync(join(uploads, owner)));
  };

  beforeAll(async () => {
    stack = await startStack();
    port = await freePort();
    await startService(stack);
    await serve();
  }, 90_000);
  beforeEach(async () => {
    way = new Way(() => port);
    vmux = new Vmux({ url: await way.open(), apiKey: gateway.api.key ?? '' });
  });
  afterAll(releaseAll);

  it('goes on with what has come when its connection is cut, and says how far it is', async () => {
    const bytes = randomBytes(50 * MB);
    const cutAt = [15 * MB, 35 * MB];
    way.onSent = (cut) => {
      if (way.sentBytes < (cutAt[0] ?? Number.POSITIVE_INFINITY)) return;
      cutAt.shift();
      cut();
    };
    const told: number[] = [];
    const digest = await vmux.uploadBundle(bytes, { onProgress: (sent) => told.push(sent) });
    expect(digest).toBe(sha256(bytes));
    expect(cutAt).toEqual([]);
    expect(way.sentBytes).toBeGreaterThanOrEqual(bytes.length);
    expect(way.sentBytes).toBeLessThan(bytes.length * 1.5);
    expect(told.at(-1)).toBe(bytes.length);
    // Twice it went back to what had come, and never to the beginning.
    const back = told.filter((sent, at) => sent < (told[at - 1] ?? 0));
    expect(back).toHaveLength(2);
    expect(Math.min(...back)).toBeGreaterThan(MB);
    const { bytes: stored } = await gateway.api.raw(`/v1/bundles/${digest}`);
    expect(sha256(stored)).toBe(digest);
    expect(left()).toEqual([]);
  }, 120_000);

  it('goes on when its gateway is killed and started again', async () => {
    const bytes = randomBytes(50 * MB);
    let killed: Promise<unknown> | undefined;
    way.onSent = () => {
      if (way.sentBytes < 25 * MB) return;
      killed ??= gateway.process.kill('SIGKILL').then(serve);
    };
    const digest = await vmux.uploadBundle(bytes);
    await killed;
    expect(killed).toBeDefined();
    expect(way.sentBytes).toBeLessThan(bytes.length * 1.5);
    const { json } = await gateway.api.get(`/v1/bundles/${digest}/upload`);
    expect(json).toEqual({ digest, stored: true, offset: 0 });
    expect(left()).toEqual([]);
  }, 120_000);

  it('that was given up goes on in the next one of the same bytes', async () => {
    const bytes = randomBytes(20 * MB);
    const gaveUp = new AbortController();
    way.onSent = () => {
      if (way.sentBytes > 10 * MB) gaveUp.abort(new Error('enough'));
    };
    await expect(vmux.uploadBundle(bytes, { signal: gaveUp.signal })).rejects.toThrow('enough');
    await vmux.uploadBundle(bytes);
    expect(way.sentBytes).toBeLessThan(bytes.length * 1.5);
  }, 60_000);

  it('of what is there already sends nothing', async () => {
    const bytes = randomBytes(10 * MB);
    await vmux.uploadBundle(bytes);
    const { sentBytes } = way;
    expect(await vmux.uploadBundle(bytes)).toBe(sha256(bytes));
    expect(way.sentBytes - sentBytes).toBeLessThan(MB);
  }, 60_000);

  it('is sent from its beginning when what had come of it was damaged', async () => {
    const bytes = randomBytes(10 * MB);
    const digest = sha256(bytes);
    const damaged = Buffer.alloc(6 * MB);
    const headers = { 'content-range': `bytes 0-${damaged.length - 1}/${bytes.length}` };
    const part = await gateway.api.call('PUT', `/v1/bundles/${digest}`, { body: damaged, headers });
    expect([part.status, part.json]).toEqual([202, { digest, offset: damaged.length }]);
    expect(await vmux.uploadBundle(bytes)).toBe(digest);
    expect(left()).toEqual([]);
  }, 60_000);
});
