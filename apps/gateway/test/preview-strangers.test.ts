import { createServer } from 'node:http';
import { fact } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import { WebSocket } from 'ws';
import { RateLimit } from '../src/application/rate-limit';
import { MAX_PER_SESSION } from '../src/previews/open-previews';
import { Strangers } from '../src/previews/strangers';
import { begin, httpApp, SESSION, startStage } from './preview-stage';

afterEach(releaseAll);

describe('A visitor who leaves while the app is dialled', () => {
  it('gives up the place at once, and the app never hears of them', async () => {
    let dials = 0;
    let asked = 0;
    let dial: () => void = () => undefined;
    const dialled = new Promise<void>((resolve) => {
      dial = resolve;
    });
    const stage = await startStage({
      dialAfter: () => {
        dials += 1;
        return dialled;
      },
    });
    begin(stage);
    const app = await httpApp(
      createServer((_request, response) => {
        asked += 1;
        response.end('the app');
      }),
    );
    const client = await stage.client(app);
    const { url, headers } = client.address;
    const sockets = Array.from({ length: 20 }, () => {
      const socket = new WebSocket(url.replace('http', 'ws'), { headers });
      socket.on('error', () => undefined);
      return socket;
    });
    const requests = Array.from({ length: MAX_PER_SESSION - 20 }, () => {
      const request = client.open('/');
      request.on('error', () => undefined).end();
      return request;
    });
    await until(() => dials === MAX_PER_SESSION);
    expect(await client.get('/')).toMatchObject({ status: 503 });
    for (const request of requests) request.destroy();
    for (const socket of sockets) socket.terminate();
    // Their dials are still under way.
    const place = async () => {
      const request = client.open('/');
      const answered = new Promise<number>((resolve) => {
        request.on('response', ({ statusCode = 0 }) => resolve(statusCode));
      });
      request.end();
      await Promise.race([answered, until(() => dials > MAX_PER_SESSION)]);
      return dials > MAX_PER_SESSION ? { answered } : null;
    };
    const late = await until(place);
    dial();
    expect(await late?.answered).toBe(200);
    expect(asked).toBe(1);
  }, 30_000);
});

describe('Who has no token', () => {
  it('is refused without a look after so many tries, and others are not', async () => {
    const reads: string[] = [];
    const strangers = new Strangers(new RateLimit(0.001, 5));
    const stage = await startStage({ strangers, onRead: (session) => reads.push(session) });
    begin(stage);
    const app = await httpApp(createServer((_request, response) => response.end('the app')));
    const shown = await httpApp(createServer((_request, response) => response.end('for all')));
    stage.happened(
      fact('PortAccessChanged', { at: 9, port: shown, public: true, wake: false, generation: 0 }),
    );
    const client = await stage.client(app);
    const open = await stage.client(shown);
    expect(await client.get('/')).toMatchObject({ status: 200 });
    expect(await open.get('/', { token: null })).toMatchObject({ status: 200 });
    const tried = [];
    for (let at = 0; at < 8; at++) {
      const host = client.host.replace(SESSION, `guess-${at}000`);
      tried.push((await client.get('/', { token: null, headers: { host } })).status);
    }
    expect(tried).toEqual([401, 401, 401, 401, 401, 429, 429, 429]);
    expect(reads.filter((session) => session.startsWith('guess-'))).toHaveLength(5);
    const refused = await client.get('/', { token: null });
    expect(refused).toMatchObject({ status: 429 });
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(await client.get('/')).toMatchObject({ status: 200 });
    expect(await open.get('/', { token: null })).toMatchObject({ status: 200 });
  });
});
