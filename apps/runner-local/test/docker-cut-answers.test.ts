import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { DriverUnavailable } from '@vmux/runner-kit';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { agentFor } from '../src/drivers/docker-agent';
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

test('an agent is described shortly, whatever hangs on its sockets: the client does so with every request', () => {
  const whole = { showHidden: true, depth: null };
  expect(inspect(agentFor('http'), whole)).toBe('connections to an engine');
  expect(inspect({ agent: agentFor('https') }, whole).length).toBeLessThan(100);
});
