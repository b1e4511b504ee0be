import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { DriverUnavailable } from '@vmux/runner-kit';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { DockerDriver } from '../src/drivers/docker-driver';

afterAll(releaseAll);

const id = { sessionId: 'cut-1111', epoch: 1, instance: 'i1' };

test('an answer of the engine that was cut after it had begun is a failure, not waited for for ever', async () => {
  const socketPath = join(temporaryDirectory('engine'), 'docker.sock');
  const engine = createServer((socket) => {
    socket.once('data', () => {
      socket.write(
        'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{',
      );
      setImmediate(() => socket.destroy());
    });
  });
  engine.listen(socketPath);
  await once(engine, 'listening');
  try {
    const endpoint = { host: `unix://${socketPath}`, source: 'the test' };
    const driver = new DockerDriver({
      ...{ runnerId: 'local', endpoint, defaultImage: 'none', supervisorFile: '/none' },
    });
    await expect(driver.probe(id)).rejects.toThrow(DriverUnavailable);
    await expect(driver.list()).rejects.toThrow('its answer was cut');
  } finally {
    engine.close();
  }
});
