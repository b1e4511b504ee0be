import { Vmux, VmuxError } from '@vmux/sdk';
import { noNames, parsed } from '../arguments';
import { Failure, UsageError } from '../failure';
import { forgetLogin, savedLogin, saveLogin } from '../login-file';
import { print } from '../terminal/output';

const maxKeyChars = 1000;

/** Remembers a server and a key, after trying them. The key comes by stdin, never by argv. */
export async function login(args: readonly string[]): Promise<number> {
  const given = parsed('login', args, {});
  const [url, extra] = given.positionals;
  if (extra !== undefined) throw new UsageError('vmux login takes one URL');
  if (url === undefined) {
    const saved = savedLogin();
    await print(saved ? `logged in to ${saved.url}` : 'not logged in: the stack here is used');
    return saved ? 0 : 1;
  }
  const apiKey = await askedFor(`API key for ${url}: `);
  const vmux = new Vmux({ url, apiKey, retryForMs: 0 });
  try {
    await vmux.call('GET', '/v1/sessions', { query: { limit: 1 } });
  } catch (fault) {
    if (!(fault instanceof VmuxError)) throw fault;
    throw new Failure(`${url}: ${fault.message}`, 'nothing was saved: check the URL and the key');
  }
  await print(`logged in to ${url}; the key is in ${saveLogin({ url: vmux.url, apiKey })}`);
  return 0;
}

/** Forgets the server that was logged in to. */
export async function logout(args: readonly string[]): Promise<number> {
  noNames(parsed('logout', args, {}), 'logout');
  await print(forgetLogin() ? 'logged out: the stack here is used' : 'was not logged in');
  return 0;
}

/** Not shown while it is typed. */
async function askedFor(question: string): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) {
    let text = '';
    for await (const piece of stdin) {
      text += String(piece);
      if (text.length > maxKeyChars) break;
    }
    return checked(text);
  }
  stderr.write(question);
  stdin.setRawMode(true);
  try {
    return checked(await typed());
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write('\n');
  }
}

function typed(): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    process.stdin.on('data', (piece: Buffer) => {
      for (const byte of piece) {
        if (byte === 0x03) reject(new Failure('not logged in', null, 130));
        else if (byte === 0x0d || byte === 0x0a || byte === 0x04) resolve(text);
        else if (byte === 0x7f) text = text.slice(0, -1);
        else if (byte >= 0x20 && byte < 0x7f) text += String.fromCharCode(byte);
      }
    });
  });
}

function checked(text: string): string {
  const key = text.trim();
  if (/^[\x21-\x7e]{8,1000}$/.test(key)) return key;
  throw new Failure('that is not an API key', 'it looks like vmux_<id>_<secret>: vmux keys create');
}
