import { createHash, randomBytes } from 'node:crypto';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';
import { ModalControl } from '../support/modal-control';
import { PreviewClient } from '../support/preview-client';
import { PREVIEWED_APP } from '../support/previewed-app';

const PATIENCE = { timeoutMs: 60_000, everyMs: 50 };
const MiB = 1024 * 1024;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
jest.setTimeout(180_000);

describeUnless(process.getuid?.() === 0, 'namespace sandboxes need root on Linux')(
  'previews of a session on Modal (emulated)',
  () => {
    let stack: EmbeddedStack;
    let modal: ModalControl;
    beforeAll(async () => {
      stack = await EmbeddedStack.start(null, { VMUX_WITH: 'modal-local' });
      modal = new ModalControl(stack.dataDir);
    });
    afterEach(() =>
      modal.faults({ refuseConnects: 0, connectTokenSeconds: 3600, inputDelayMs: 0 }),
    );
    afterAll(async () => {
      await stack?.stop();
      await releaseAll();
    });

    /** A session with the app on its loopback alone, and who looks at it. */
    const served = async (): Promise<{ session: ClientSession; app: PreviewClient }> => {
      const session = await stack.create({ name: 'app', provider: 'modal' });
      const path = `/v1/sessions/${session.id}`;
      await stack.api.call('PUT', `${path}/files?path=/workspace/app.js&parents=1`, {
        body: Buffer.from(PREVIEWED_APP),
      });
      await session.start('exec node /workspace/app.js 127.0.0.1 4000');
      await until(async () => (await session.types()).includes('PortOpened'), PATIENCE);
      const { token } = (await stack.api.post(`${path}/ports/4000/token`, {})).json;
      return { session, app: new PreviewClient(stack.api.url, session.id, 4000, token) };
    };
    const socketTo = (address: { url: string; headers: Record<string, string> }, path: string) =>
      new WebSocket(`${address.url.replace('http', 'ws')}${path}`, { headers: address.headers });

    describe('that is there', () => {
      let session: ClientSession;
      let app: PreviewClient;
      beforeAll(async () => {
        ({ session, app } = await served());
      });
      afterAll(() => session?.stop());

      it('go by a connect token, which neither the app nor the visitor sees', async () => {
        const before = await modal.connects();
        const own = { authorization: 'Bearer of-the-app', cookie: 'a=b' };
        const reply = await app.get('/headers', { headers: own });
        expect(reply).toMatchObject({ status: 200 });
        const seen = JSON.parse(reply.text);
        expect(seen).toMatchObject({ host: 'localhost:4000', ...own });
        expect(JSON.stringify([seen, reply.headers])).not.toMatch(/modal|bridge|verified|eyJ/i);
        const after = await modal.connects();
        expect(after.opened).toBe(before.opened + 1);
        expect(after.bytesOut).toBeGreaterThan(before.bytesOut + reply.bytes.length);
      });

      it('carry 20 MiB up and down exactly, on the connection that is open already', async () => {
        const before = await modal.connects();
        const content = randomBytes(20 * MiB);
        const up = await app.call('/upload', { method: 'POST', body: content });
        expect(up).toMatchObject({ status: 200, text: sha256(content) });
        const down = await app.get('/download');
        expect(sha256(down.bytes)).toBe(sha256(content));
        expect(await app.call('/download', { method: 'HEAD' })).toMatchObject({
          status: 200,
          text: '',
          headers: { 'content-length': String(content.length) },
        });
        const after = await modal.connects();
        expect(after.opened).toBe(before.opened);
        expect(after.bytesIn - before.bytesIn).toBeGreaterThan(content.length);
        expect(after.bytesOut - before.bytesOut).toBeGreaterThan(content.length);
      });

      it('carry events one by one, and WebSockets', async () => {
        const call = app.open('/events', { headers: { accept: 'text/event-stream' } });
        let text = '';
        call.on('response', (response) => {
          response.on('data', (piece: Buffer) => {
            text += piece;
          });
          response.on('error', () => undefined);
        });
        call.on('error', () => undefined);
        call.end();
        for (let event = 1; event <= 3; event += 1) {
          await until(() => text.includes(`data: ${event}\n\n`), PATIENCE);
          expect(text).not.toContain(`data: ${event + 1}\n\n`);
          expect(await app.call('/next', { method: 'POST' })).toMatchObject({ status: 200 });
        }
        call.destroy();
        const socket = socketTo(app.address, '/chat');
        const echoed: string[] = [];
        socket.on('message', (data) => echoed.push(data.toString()));
        await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
        for (const word of ['one', 'two']) socket.send(word);
        await until(() => echoed.length === 2, PATIENCE);
        expect(echoed).toEqual(['one', 'two']);
        socket.terminate();
      });

      it('leave raw connections as they are, and no trace in the history', async () => {
        const socket = socketTo(
          { url: stack.api.url, headers: { authorization: `Bearer ${stack.api.key}` } },
          `/v1/sessions/${session.id}/ports/4000/connect`,
        );
        const pieces: Buffer[] = [];
        socket.on('message', (data, isBinary) => isBinary && pieces.push(data as Buffer));
        socket.once('open', () => {
          socket.send(Buffer.from('GET / HTTP/1.1\r\nHost: raw\r\nConnection: close\r\n\r\n'));
          socket.send('end');
        });
        await new Promise((resolve) => socket.once('close', resolve));
        expect(Buffer.concat(pieces).toString()).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*raw /);
        const events = await session.events();
        const opened = events.filter(({ type }) => /^Port(Opened|Closed)$/.test(type));
        expect(opened.map(({ data }) => data.port)).toEqual([4000]);
        expect(JSON.stringify(events)).not.toMatch(/bridge|eyJ/);
        expect(stack.output).not.toMatch(/eyJ/);
      });
    });

    it('go on with another token when theirs has expired', async () => {
      await modal.faults({ connectTokenSeconds: 3 });
      const { session, app } = await served();
      const before = await modal.connects();
      expect(await app.get('/')).toMatchObject({ status: 200 });
      const call = app.open('/events');
      const cut = new Promise<void>((resolve) => {
        call.on('error', () => resolve());
        call.on('response', (answer) => answer.resume().on('close', () => resolve()));
      });
      call.end();
      await cut;
      await modal.faults({ connectTokenSeconds: 3600 });
      expect(await app.get('/')).toMatchObject({ status: 200 });
      const { tokens, opened } = await modal.connects();
      expect([tokens - before.tokens, opened - before.opened]).toEqual([2, 2]);
      await session.stop();
    });

    it('go the usual way, and none fails, while connect tokens are refused', async () => {
      await modal.faults({ refuseConnects: 1_000_000 });
      const { session, app } = await served();
      const before = await modal.connects();
      const content = randomBytes(MiB);
      const up = await app.call('/upload', { method: 'POST', body: content });
      expect(up).toMatchObject({ status: 200, text: sha256(content) });
      expect(sha256((await app.get('/download')).bytes)).toBe(sha256(content));
      const after = await modal.connects();
      // Asked twice, and then not again for a while.
      expect(after).toMatchObject({ opened: before.opened, refused: before.refused + 2 });
      expect(stack.output).toMatch(/response: 401.*ports are not reached directly/);
      expect(stack.output).not.toMatch(/eyJ/);
      await session.stop();
    });
  },
);
