import { describeUnless, releaseAll, until } from '@vmux/testing';
import { Browser, browserProgram, type Page } from '../support/browser';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';

const isRoot = process.getuid?.() === 0;
const because = isRoot ? 'no chromium is installed' : 'namespace sandboxes need root on Linux';

describeUnless(isRoot && browserProgram !== undefined, because)('in a real browser', () => {
  let stack: EmbeddedStack;
  let browser: Browser;
  let session: ClientSession;
  let page: Page;

  beforeAll(async () => {
    [stack, browser] = await Promise.all([EmbeddedStack.start(), Browser.start()]);
    session = await stack.create({ name: 'seen' });
  }, 120_000);
  beforeEach(async () => {
    page = await browser.page();
  }, 30_000);
  afterAll(async () => {
    await stack?.stop();
    await releaseAll();
  }, 120_000);

  const put = (path: string, content: string) =>
    stack.api.call('PUT', `${session.path}/files?path=${path}&parents=1`, {
      body: Buffer.from(content),
    });
  const originOf = (port: number, id = session.id) =>
    `http://${port}-${id}.localhost:${new URL(stack.api.url).port}`;

  describe('the preview of a port on which nothing listens yet', () => {
    it('shows the log as it is written, becomes the app by itself, and leaves no token in sight', async () => {
      await put('/workspace/app.js', APP);
      const exec = await session.start(
        'echo "building 漢字 <b>"; printf "\\033[31mred\\033[0m\\n"; until [ -e go ]; do sleep 0.1; done; exec node app.js 8000',
        { cwd: '/workspace' },
      );
      const { json } = await session.ask('ports/8000/token');
      expect(json.tokenUrl).toBe(`${originOf(8000)}/?token=${json.token}`);
      await page.open(`${json.tokenUrl}&kept=1`);
      await page.shows('building 漢字 <b>\nred');
      expect(await page.title()).toBe('Waiting for port 8000');
      expect(await page.url()).toBe(`${originOf(8000)}/?kept=1`);
      expect(await page.run('document.cookie')).toBe('');
      expect(await page.cookies()).toEqual([
        expect.objectContaining({
          ...{ name: 'vmux_preview', httpOnly: true, sameSite: 'Lax', path: '/' },
          // Without a leading dot: for this host alone.
          domain: `8000-${session.id}.localhost`,
        }),
      ]);
      await put('/workspace/go', '');
      const shown = await page.shows('this is the app');
      expect(shown).toContain('/?kept=1 of localhost:8000 without our cookie');
      expect(await page.url()).toBe(`${originOf(8000)}/?kept=1`);
      expect((await session.exec(exec)).status).toBe('running');
    }, 90_000);

    it('shows the public stages alone, and becomes the app for them too', async () => {
      await session.ask('ports/8001/publish');
      const secret = 'a line for its owner alone';
      await session.start(
        `echo ${secret}; until [ -e go-public ]; do sleep 0.1; done; exec node app.js 8001`,
        { cwd: '/workspace' },
      );
      await until(async () => {
        const { bytes } = await stack.api.raw(`${session.path}/logs`);
        return bytes.includes(secret);
      });
      await page.open(`${originOf(8001)}/`);
      const shown = await page.shows('running · provisioned');
      expect(shown).toContain('Waiting for port 8001');
      // Everything that the page was told, not only what it shows.
      const told = await page.run<string[]>(TOLD_FOR_A_SECOND);
      expect(told.some((each) => each.includes('event: state'))).toBe(true);
      expect(told.join('')).not.toContain('event: log');
      expect(await page.text()).not.toContain(secret);
      expect(await page.cookies()).toEqual([]);
      await put('/workspace/go-public', '');
      await page.shows('this is the app');
    }, 90_000);
  });

  it('echoes over a WebSocket from the app’s own page, and refuses another site’s', async () => {
    const { json } = await session.ask('ports/8000/token');
    await page.open(json.tokenUrl);
    await page.shows('this is the app');
    const sent = ['one', '漢字 é', 'x'.repeat(2000)];
    expect(await page.run(echoed(`ws://${new URL(originOf(8000)).host}/`, sent))).toEqual(sent);
    // A page of another port of the same session is another site’s.
    await page.open(`${originOf(8001)}/`);
    await page.shows('this is the app');
    expect(await page.run(echoed(`ws://${new URL(originOf(8000)).host}/`, sent))).toBe('refused');
  }, 90_000);

  it('says of a private port, an ended and an unknown session what they are', async () => {
    await page.open(`${originOf(8000)}/`);
    await page.shows('Private, or not there');
    await page.open(`${originOf(8000, 'nobody-0000')}/`);
    await page.shows('Private, or not there');
    const other = await stack.create({ name: 'short' });
    const { json } = await other.ask('ports/8000/token');
    await page.open(json.tokenUrl);
    await page.shows('Waiting for port 8000');
    await other.stop();
    // The page that waits finds out by itself.
    expect(await page.shows('The session has ended')).toContain('vmux logs');
  }, 90_000);

  it('types into a terminal and shows it, with a ticket, from the gateway’s own pages alone', async () => {
    const exec = await session.start('exec sh -i', {
      pty: { cols: 80, rows: 24 },
      env: { PS1: '$ ' },
    });
    const attach = async () => {
      const { json } = await session.ask('tickets');
      const at = `${stack.api.url.replace('http', 'ws')}${session.path}/execs/${exec}/attach`;
      return `${at}?ticket=${json.ticket}&cols=100&rows=30`;
    };
    // Answers of the API let no script connect anywhere.
    await page.ignorePolicy();
    await page.open(`${stack.api.url}/health`);
    const typed = 'stty size; echo $((6 * 7)) 漢字\n';
    const outcome = await page.run<{ hello: object; output: string }>(
      terminalOf(await attach(), typed, '42 漢字\r\n'),
    );
    expect(outcome.hello).toMatchObject({ protocol: 1, execId: exec, mode: 'type' });
    expect(outcome.output).toContain('30 100\r\n42 漢字\r\n');
    await page.open(`${originOf(8001)}/`);
    await page.shows('this is the app');
    expect(await page.run(terminalOf(await attach(), typed, '42 漢字\r\n'))).toBe('refused');
  }, 90_000);
});

/** What the page says of itself is what a visitor sees; the server says what reached it. */
const APP = `
const { createHash } = require('node:crypto');
const { createServer } = require('node:http');
const server = createServer(({ url, headers }, response) => {
  const cookie = (headers.cookie ?? '').includes('vmux_preview') ? 'with' : 'without';
  response.setHeader('content-type', 'text/html');
  response.end('<title>app</title><p>this is the app</p><p>' + url + ' of ' + headers.host + ' ' +
    cookie + ' our cookie</p>');
});
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n' +
    'Sec-WebSocket-Accept: ' + createHash('sha1').update(key).digest('base64') + '\\r\\n\\r\\n');
  let held = Buffer.alloc(0);
  socket.on('data', (piece) => {
    held = Buffer.concat([held, piece]);
    for (;;) {
      if (held.length < 6) return;
      let length = held[1] & 127;
      let at = 2;
      if (length === 126) { length = held.readUInt16BE(2); at = 4; }
      if (held.length < at + 4 + length) return;
      const mask = held.subarray(at, at + 4);
      const text = held.subarray(at + 4, at + 4 + length).map((byte, index) => byte ^ mask[index & 3]);
      const head = length < 126 ? [held[0], length] : [held[0], 126, length >> 8, length & 255];
      held = held.subarray(at + 4 + length);
      socket.write(Buffer.concat([Buffer.from(head), text]));
    }
  });
  socket.on('error', () => undefined);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
`;

/** In the page: the pieces of the waiting page's own stream, as they come within a second. */
const TOLD_FOR_A_SECOND = `(async () => {
  const over = AbortSignal.timeout(1000);
  const { body } = await fetch('/.vmux/preview/events', { signal: over });
  const told = [];
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return told;
      told.push(value);
    }
  } catch (fault) {
    if (!over.aborted) throw fault;
    return told;
  }
})()`;

/** In the page: what comes back for each text. */
const echoed = (url: string, sent: readonly string[]): string => `new Promise((resolve) => {
  const socket = new WebSocket(${JSON.stringify(url)});
  const back = [];
  const sent = ${JSON.stringify(sent)};
  socket.onopen = () => { for (const text of sent) socket.send(text); };
  socket.onmessage = ({ data }) => {
    back.push(data);
    if (back.length < sent.length) return;
    resolve(back);
    socket.close();
  };
  socket.onerror = () => resolve('refused');
})`;

/** In the page: attaches as docs/attach.md says, types a line, and ends when the output shows it. */
const terminalOf = (
  url: string,
  typed: string,
  shown: string,
): string => `new Promise((resolve) => {
  const socket = new WebSocket(${JSON.stringify(url)});
  socket.binaryType = 'arraybuffer';
  const decoder = new TextDecoder();
  let hello = null;
  let output = '';
  const type = () => {
    const bytes = new TextEncoder().encode(${JSON.stringify(typed)});
    const frame = new Uint8Array(9 + bytes.length);
    frame[0] = 17;
    frame.set(bytes, 9);
    socket.send(frame);
  };
  socket.onmessage = ({ data }) => {
    const frame = new Uint8Array(data);
    const body = frame.subarray(1);
    if (frame[0] === 1) {
      hello = JSON.parse(decoder.decode(body));
      type();
    }
    if (frame[0] === 2) output += decoder.decode(body.subarray(8), { stream: true });
    if (output.includes(${JSON.stringify(shown)})) {
      resolve({ hello, output });
      socket.close();
    }
  };
  socket.onerror = () => resolve('refused');
})`;
