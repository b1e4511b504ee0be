import { parsed } from '../arguments';
import { rememberForward } from '../background-forwards';
import { UsageError } from '../failure';
import { type Forwarding, forwarding } from '../forwarding';
import { findServer, findSession } from '../server';
import { jsonText } from '../terminal/escape';
import { print, say } from '../terminal/output';
import { portFrom } from './ports';

const options = {
  json: { type: 'boolean' },
  /** Ended by `vmux down` too. */
  background: { type: 'boolean' },
} as const;

/** Ports of a session on this machine's loopback, until Ctrl-C or the session's end. */
export async function forward(args: readonly string[]): Promise<number> {
  const given = parsed('forward', args, options);
  const [name, ...pairs] = given.positionals;
  if (name === undefined || pairs.length === 0)
    throw new UsageError(
      'vmux forward takes a session and ports',
      'as in: vmux forward @last 8000, or 8000:9000 for another port here',
    );
  const wanted = pairs.map(pairFrom);
  const sandbox = await findSession(await findServer(), name);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => stop.abort());
  const open: Forwarding[] = [];
  const forget = given.has('background') ? rememberForward() : () => undefined;
  try {
    for (const { port, local } of wanted) {
      const onFault = (fault: Error) => void say(`port ${port}: ${fault.message}`);
      const made = await forwarding(sandbox, port, local, onFault);
      open.push(made);
      const { url, localPort } = made;
      if (given.has('json'))
        await print(jsonText({ session: sandbox.id, port, localPort, localUrl: url }));
      else await print(`127.0.0.1:${localPort} is port ${port} of ${sandbox.id}`);
    }
    const how = await sandbox.untilEnded({ signal: stop.signal }).catch((fault: unknown) => {
      if (stop.signal.aborted) return null;
      throw fault;
    });
    if (how !== null) await say(`${sandbox.id} is ${how}`);
    return 0;
  } finally {
    forget();
    for (const each of open) each.close();
  }
}

/** `8000`, `8000:9000`, or `8000:0` for any port here. */
function pairFrom(text: string): { port: number; local: number } {
  const [remote = '', local = remote, extra] = text.split(':');
  if (extra !== undefined) throw new UsageError(`"${text}" is not PORT or PORT:LOCAL`);
  return { port: portFrom(remote), local: local === '0' ? 0 : portFrom(local) };
}
