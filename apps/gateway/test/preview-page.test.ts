import type { IncomingMessage, ServerResponse } from 'node:http';
import { createContext, runInContext } from 'node:vm';
import { showNotice } from '../src/previews/preview-pages';

/** The page's own script, run against what a browser would give it. */
function pageWith(listeners: Map<string, (event: { data: string }) => void>) {
  let body = '';
  const response = {
    headersSent: false,
    writeHead: () => response,
    end: (text: string) => {
      body = text;
    },
  };
  const request = { method: 'GET', headers: { accept: 'text/html' } };
  showNotice(request as IncomingMessage, response as unknown as ServerResponse, {
    status: 503,
    title: '<b>waiting</b>',
    text: '"&',
    waits: true,
  });
  const [, script = ''] = /<script nonce="[^"]+">([\s\S]*)<\/script>/.exec(body) ?? [];
  const elements = {
    log: { textContent: '', scrollTop: 0, scrollHeight: 7 },
    stages: { textContent: '' },
  };
  const seen = { urls: [] as string[], reloads: 0, closed: 0 };
  class EventSource {
    constructor(url: string) {
      seen.urls.push(url);
    }
    addEventListener(name: string, listener: (event: { data: string }) => void) {
      listeners.set(name, listener);
    }
    close() {
      seen.closed += 1;
    }
  }
  const context = createContext({
    ...{ EventSource, TextDecoder, Uint8Array, atob, JSON },
    document: { getElementById: (id: keyof typeof elements) => elements[id] },
    location: {
      reload: () => {
        seen.reloads += 1;
      },
    },
    setTimeout: (act: () => void) => act(),
  });
  runInContext(script, context);
  return { body, elements, seen };
}

describe('The page that waits', () => {
  it('shows text alone, whatever the log holds, and asks again once the port listens', () => {
    const listeners = new Map<string, (event: { data: string }) => void>();
    const { elements, seen } = pageWith(listeners);
    expect(seen.urls).toEqual(['/.vmux/preview/events']);
    const log = (bytes: Buffer) =>
      listeners.get('log')?.({ data: JSON.stringify({ b64: bytes.toString('base64') }) });
    const text = Buffer.from('\x1b[31mréd\x1b[0m \x1b]0;title\x07<script>\r\nnext 漢\x07');
    const half = text.length - 2;
    log(text.subarray(0, half));
    log(text.subarray(half));
    expect(elements.log.textContent).toBe('réd <script>\r\nnext 漢'.replace('\r', ''));
    expect(elements.log.scrollTop).toBe(7);
    listeners.get('state')?.({
      data: JSON.stringify({ status: 'starting', stages: ['extracted'] }),
    });
    expect(elements.stages.textContent).toBe('starting · extracted');
    expect(seen.reloads).toBe(0);
    listeners.get('ready')?.({ data: '{}' });
    expect(seen).toMatchObject({ reloads: 1, closed: 1 });
  });

  it('takes no word for markup', () => {
    const { body } = pageWith(new Map());
    expect(body).not.toContain('<b>');
    expect(body).toContain('&#34;&#38;');
  });
});
