import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

/** What a visitor is told instead of the app's answer. */
export interface Notice {
  readonly status: number;
  readonly title: string;
  readonly text: string;
  readonly retryAfterSeconds?: number;
  /** Becomes the app by itself; with the session's log where the visitor may see it. */
  readonly waits?: boolean;
}

export const EVENTS_PATH = '/.vmux/preview/events';

const COMMON = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
} as const;

export const wantsHtml = ({ method, headers }: IncomingMessage): boolean =>
  (method === 'GET' || method === 'HEAD') && /\btext\/html\b/i.test(headers.accept ?? '');

export function showNotice(
  request: IncomingMessage,
  response: ServerResponse,
  notice: Notice,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const nonce = randomBytes(16).toString('base64');
  const isHtml = wantsHtml(request);
  const body = isHtml ? pageOf(notice, nonce) : `${notice.title}: ${notice.text}\n`;
  const wait = notice.retryAfterSeconds;
  response.writeHead(notice.status, {
    ...COMMON,
    'content-type': `text/${isHtml ? 'html' : 'plain'}; charset=utf-8`,
    'content-length': Buffer.byteLength(body),
    ...(isHtml
      ? {
          'content-security-policy': `default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'; connect-src 'self'`,
        }
      : {}),
    ...(wait === undefined ? {} : { 'retry-after': String(wait) }),
    // What is left of a body is not read: the next request would be found behind it.
    connection: 'close',
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}

/** To whoever asked for a WebSocket. */
export function refuseSocket(socket: Duplex, { status, title, text }: Notice): void {
  const body = `${title}: ${text}\n`;
  socket.end(
    `HTTP/1.1 ${status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\ncache-control: no-store\r\n` +
      `connection: close\r\n\r\n${body}`,
  );
}

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

const STYLE = `
  body { font: 16px/1.5 system-ui, sans-serif; margin: 3rem auto; max-width: 46rem; padding: 0 1rem;
         color: #222; background: #fafafa }
  h1 { font-size: 1.3rem } pre { font: 13px/1.4 ui-monospace, monospace; background: #111; color: #ddd;
         padding: 1rem; max-height: 60vh; overflow: auto; white-space: pre-wrap; word-break: break-all }
  pre:empty { display: none } #stages { color: #666 }
  @media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } }`;

/** Shows text alone, whatever the log holds; asks again for the page once the port listens. */
const SCRIPT = `
  const log = document.getElementById('log');
  const decoder = new TextDecoder();
  const plain = (text) => text.replace(/\\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\\x07\\x1b]*(\\x07|\\x1b\\\\)?|.)/g, '')
    .replace(/\\r(?!\\n)[^\\n]*/g, '').replace(/[\\x00-\\x08\\x0b-\\x1f\\x7f]/g, '');
  const events = new EventSource('${EVENTS_PATH}');
  events.addEventListener('log', ({ data }) => {
    const bytes = Uint8Array.from(atob(JSON.parse(data).b64), (char) => char.charCodeAt(0));
    log.textContent = (log.textContent + plain(decoder.decode(bytes, { stream: true }))).slice(-65536);
    log.scrollTop = log.scrollHeight;
  });
  events.addEventListener('state', ({ data }) => {
    const { status, stages } = JSON.parse(data);
    document.getElementById('stages').textContent = [status, ...stages].join(' · ');
  });
  const again = () => { events.close(); setTimeout(() => location.reload(), 300); };
  events.addEventListener('ready', again);
  events.addEventListener('over', again);`;

function pageOf({ title, text, waits = false }: Notice, nonce: string): string {
  const live = waits
    ? `<p id="stages"></p><pre id="log"></pre><script nonce="${nonce}">${SCRIPT}</script>
<noscript><meta http-equiv="refresh" content="2"></noscript>`
    : '';
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title><style nonce="${nonce}">${STYLE}</style></head>
<body><h1>${escaped(title)}</h1><p>${escaped(text)}</p>${live}</body></html>
`;
}
