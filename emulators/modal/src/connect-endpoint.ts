import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  STATUS_CODES,
} from 'node:http';
import { type Duplex, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FaultBoard } from './faults';
import type { Tokens } from './tokens';
import type { WorkerPool } from './worker-pool';

/** A connect token is for one port of one sandbox. */
export const connectSubject = (sandboxId: string, port: number): string =>
  `connect ${sandboxId} ${port}`;

const NAME = '_modal_connect_token';
/** On every answer: nobody takes this for Modal's own. */
const LABEL = { 'x-modal-emulated': '1' };

class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/**
 * HTTP and WebSocket to a port of a sandbox, for who has a connect token. On Modal there is TLS, and a name
 * for each sandbox; here it is one plain port of the loopback, and the token says which.
 */
export function connectEndpoint(pool: WorkerPool, board: FaultBoard, tokens: Tokens): Server {
  const reach = async (message: IncomingMessage) => {
    const { token, path, asQuery } = tokenOf(message);
    const [, sandboxId = '', port = ''] =
      /^connect (\S+) (\d+)$/.exec(tokens.subjectOf(token) ?? '') ?? [];
    const sandbox = pool.find(sandboxId);
    if (!sandbox || board.refusesConnect())
      throw new Refused(401, 'the connect token is missing, wrong or has expired');
    if (sandbox.result) throw new Refused(404, 'the sandbox has finished');
    const inside = await sandbox.box.dial(Number(port)).catch((fault: Error) => {
      throw new Refused(502, fault.message);
    });
    board.connects.opened += 1;
    const setCookie = asQuery ? { 'set-cookie': `${NAME}=${token}; Path=/; HttpOnly` } : {};
    inside.on('error', () => undefined);
    const connection = message.headers.upgrade ? 'Upgrade' : 'close';
    const call = httpRequest({
      method: message.method,
      path,
      headers: { ...message.headers, connection, 'x-verified-user-data': '' },
      setHost: false,
      createConnection: () => inside,
    });
    // Whoever waits for the answer hears of it; nobody else does.
    call.on('error', () => undefined);
    const over = setTimeout(() => message.socket.destroy(), tokens.leftMs(token));
    message.socket.once('close', () => {
      clearTimeout(over);
      call.destroy();
      inside.destroy();
    });
    return { call, inside, headers: { ...LABEL, ...setCookie } };
  };
  /** What goes in is as far away as an exec's input: each piece comes later, and the next does not wait. */
  const counted = (which: 'bytesIn' | 'bytesOut') => {
    const delayMs = () => (which === 'bytesIn' ? board.faults.inputDelayMs : 0);
    return new Transform({
      transform(chunk: Buffer, _encoding, done) {
        board.connects[which] += chunk.length;
        if (delayMs() === 0) return done(null, chunk);
        setTimeout(() => this.push(chunk), delayMs());
        done();
      },
      flush: (done) => void setTimeout(done, delayMs()),
    });
  };
  const refusal = (fault: unknown): Refused => {
    board.connects.refused += 1;
    return fault instanceof Refused ? fault : new Refused(500, String(fault));
  };

  const server = createServer((message, response) => {
    const serve = async () => {
      const { call, headers } = await reach(message);
      const answered = new Promise<IncomingMessage>((resolve, reject) => {
        call.once('response', resolve).once('error', reject);
      });
      const sending = pipeline(message, counted('bytesIn'), call);
      sending.catch(() => undefined);
      const answer = await answered.catch((fault: Error) => {
        throw new Refused(502, fault.message);
      });
      response.writeHead(answer.statusCode ?? 502, { ...answer.headers, ...headers });
      response.flushHeaders();
      await pipeline(answer, counted('bytesOut'), response);
    };
    serve().catch((fault) => {
      const { status, message: text } = refusal(fault);
      if (response.headersSent) response.destroy();
      else response.writeHead(status, LABEL).end(`${text}\n`);
    });
  });
  server.on('upgrade', (message: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    const serve = async () => {
      const { call, headers } = await reach(message);
      const answered = new Promise<[IncomingMessage, Duplex, Buffer]>((resolve, reject) => {
        call.once('upgrade', (...all) => resolve(all)).once('error', reject);
        call.once('response', ({ statusCode = 502 }) => reject(new Refused(statusCode, 'no')));
      });
      call.end();
      const [answer, inside, first] = await answered;
      socket.write(headOf(101, { ...answer.headers, ...headers }));
      inside.unshift(first);
      socket.unshift(head);
      await Promise.all([
        pipeline(socket, counted('bytesIn'), inside),
        pipeline(inside, counted('bytesOut'), socket),
      ]).catch(() => socket.destroy());
    };
    serve().catch((fault) => {
      const { status } = refusal(fault);
      socket.end(headOf(status, { ...LABEL, connection: 'close', 'content-length': '0' }));
    });
  });
  return server;
}

/** In the query, in a cookie, or in the header, which may be the app's own where it is in one of the others. */
function tokenOf({ headers, url = '/' }: IncomingMessage) {
  const bearer = /^Bearer (\S+)$/i.exec(headers.authorization ?? '')?.[1];
  const [path = '/', query = ''] = url.split(/\?(.*)/s);
  const parameters = query.split('&').filter((part) => part !== '');
  const given = parameters.find((part) => part.startsWith(`${NAME}=`))?.slice(NAME.length + 1);
  const cookie = new RegExp(`(?:^|;\\s*)${NAME}=([^;]*)`).exec(headers.cookie ?? '')?.[1];
  const asQuery = given !== undefined;
  return {
    token: given ?? cookie ?? bearer ?? '',
    path: asQuery ? without(path, parameters) : url,
    asQuery,
  };
}

function without(path: string, parameters: readonly string[]): string {
  const rest = parameters.filter((part) => !part.startsWith(`${NAME}=`)).join('&');
  return rest === '' ? path : `${path}?${rest}`;
}

function headOf(status: number, headers: NodeJS.Dict<string | readonly string[]>): string {
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((each) => `${name}: ${each}\r\n`),
  );
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n`;
}
