import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { releaseAll, releaseLater } from '@vmux/testing';
import { httpAdapter, PreviewsFirst } from '../src/http/server';
import { expectBodyWithin } from '../src/http/slow-requests';

afterEach(releaseAll);

describe('A request whose body does not come', () => {
  const ended: string[] = [];

  async function open(withinMs: number) {
    const server = createServer({ requestTimeout: 0 }, (request, response) => {
      expectBodyWithin(withinMs, request, response);
      request.on('error', () => undefined);
      request.on('end', () => {
        ended.push(String(request.url));
        response.end('whole');
      });
      request.resume();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    releaseLater(() => void server.close());
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    releaseLater(() => void socket.destroy());
    socket.write('POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf');
    let heard = '';
    socket.on('data', (data) => {
      heard += data;
    });
    return { socket, heard: () => heard };
  }

  it('is told so and cut', async () => {
    const { socket, heard } = await open(50);
    await once(socket, 'close');
    expect(heard()).toMatch(/^HTTP\/1\.1 408 /);
    expect(ended).toEqual([]);
  });

  it('is served when the rest comes in time', async () => {
    const { socket, heard } = await open(60_000);
    socket.write('-whole');
    await once(socket, 'data');
    expect(heard()).toMatch(/^HTTP\/1\.1 200 /);
  });
});

it('The gateway’s server bounds no upload by Node’s own clock', () => {
  const limits = { bodyBytes: 1024, headerBytes: 16_384 };
  const config = { limits } as Parameters<typeof httpAdapter>[0];
  const { server } = httpAdapter(config, new PreviewsFirst()).getInstance();
  expect(server).toMatchObject({ requestTimeout: 0, headersTimeout: 20_000 });
});
