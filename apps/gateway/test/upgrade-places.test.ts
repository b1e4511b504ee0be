import type { IncomingMessage } from 'node:http';
import { PassThrough } from 'node:stream';
import { AttachServer } from '../src/attach/attach-server';
import { Followers } from '../src/http/followers';
import { Metrics } from '../src/http/metrics';
import { PortConnections } from '../src/previews/port-connections';

const CALLER = { keyId: 'k', owner: 'ann', scopes: [], liveSessions: null };
const SESSION = 'web-0a1b';

const upgradeTo = (path: readonly string[]) => ({
  request: { headers: {}, socket: {} } as IncomingMessage,
  socket: new PassThrough(),
  head: Buffer.alloc(0),
  url: new URL('http://gateway/'),
  path,
});

describe('Whoever asks for a connection', () => {
  let followers: Followers;
  let woken = 0;
  const callers = { known: async () => CALLER, admit: () => undefined };
  const sessions = {
    session: async () => ({ provider: 'cloudflare' }),
    exec: async () => ({ exec: { id: 'e1', pty: true } }),
  };
  const streams = {
    awake: async () => {
      woken += 1;
      throw new Error('woken');
    },
  };
  const connections = () =>
    new PortConnections(callers as never, sessions as never, streams as never, followers);
  const terminals = () => new AttachServer({ callers, sessions, streams, followers } as never);

  beforeEach(() => {
    woken = 0;
    followers = new Followers(1, 1000, new Metrics(), () => false);
  });
  afterEach(() => followers.closeAll());

  it('is refused the port that a provider keeps for itself, and wakes nothing', async () => {
    await expect(connections().take(upgradeTo([SESSION, '3000']))).rejects.toMatchObject({
      code: 'invalid_request',
    });
    expect(woken).toBe(0);
    await expect(connections().take(upgradeTo([SESSION, '3001']))).rejects.toThrow('woken');
  });

  it.each([
    ['port', '8080', connections],
    ['terminal', 'e1', terminals],
  ])('to a %s and is gone before it is let in holds no place', async (_what, name, server) => {
    const upgrade = upgradeTo([SESSION, name]);
    upgrade.socket.destroy();
    await new Promise((resolve) => upgrade.socket.once('close', resolve));
    await server().take(upgrade);
    expect(woken).toBe(0);
    followers.enter(CALLER).leave();
  });
});
