/**
 * How a request proves that it comes from a runner: an HMAC over everything that decides what it does, with
 * a time after which it is void and a number that is taken once. Runs in workerd and in Node.
 */
export interface Signed {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  readonly runner: string;
  readonly body: Uint8Array;
}

export const HEADERS = {
  runner: 'x-vmux-runner',
  timestamp: 'x-vmux-timestamp',
  nonce: 'x-vmux-nonce',
  signature: 'x-vmux-signature',
} as const;

/** A request is taken this long before and after the time it names. */
export const WINDOW_MS = 60_000;
export const LEAST_KEY_CHARS = 32;

const prefix = 'v1=';
const utf8 = new TextEncoder();

export async function sign(
  key: string,
  request: Signed,
  atMs = Date.now(),
): Promise<Record<string, string>> {
  const timestamp = String(atMs);
  const nonce = crypto.randomUUID();
  const text = await textOf(request, timestamp, nonce);
  const mac = await crypto.subtle.sign('HMAC', await importKey(key), utf8.encode(text));
  return {
    [HEADERS.runner]: request.runner,
    [HEADERS.timestamp]: timestamp,
    [HEADERS.nonce]: nonce,
    [HEADERS.signature]: `${prefix}${hexOf(new Uint8Array(mac))}`,
  };
}

export type Verdict =
  | { readonly verdict: 'genuine'; readonly nonce: string; readonly voidAtMs: number }
  | { readonly verdict: 'unsigned' }
  | { readonly verdict: 'expired' };

/** Any of the keys will do, so that they can be changed one end at a time. */
export async function verify(
  keys: readonly string[],
  request: Signed,
  header: (name: string) => string | null,
  nowMs = Date.now(),
): Promise<Verdict> {
  const timestamp = header(HEADERS.timestamp) ?? '';
  const nonce = header(HEADERS.nonce) ?? '';
  const mac = bytesOf(header(HEADERS.signature) ?? '');
  if (!/^\d{1,15}$/.test(timestamp) || !/^[A-Za-z0-9-]{16,64}$/.test(nonce) || !mac)
    return { verdict: 'unsigned' };
  const text = utf8.encode(await textOf(request, timestamp, nonce));
  let isGenuine = false;
  for (const key of keys) {
    // Compares in constant time.
    if (await crypto.subtle.verify('HMAC', await importKey(key), mac, text)) isGenuine = true;
  }
  if (!isGenuine) return { verdict: 'unsigned' };
  if (Math.abs(nowMs - Number(timestamp)) > WINDOW_MS) return { verdict: 'expired' };
  // Whoever remembers the number may be ahead of whoever looks at the time.
  return { verdict: 'genuine', nonce, voidAtMs: Number(timestamp) + 2 * WINDOW_MS };
}

async function textOf(
  { method, target, runner, body }: Signed,
  timestamp: string,
  nonce: string,
): Promise<string> {
  const digest = hexOf(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(body))));
  return ['v1', method, target, runner, timestamp, nonce, digest].join('\n');
}

const importKey = (key: string) =>
  crypto.subtle.importKey('raw', utf8.encode(key), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
    'verify',
  ]);

const hexOf = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');

function bytesOf(signature: string): Uint8Array<ArrayBuffer> | undefined {
  const hex = signature.startsWith(prefix) ? signature.slice(prefix.length) : '';
  if (!/^[0-9a-f]{64}$/.test(hex)) return undefined;
  return Uint8Array.from({ length: 32 }, (_, at) =>
    Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16),
  );
}
