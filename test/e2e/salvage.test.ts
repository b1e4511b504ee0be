import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SupervisorClient } from '@vmux/runner-kit';
import { describeUnless, releaseAll, until } from '@vmux/testing';
import { NsDriver } from '../../apps/runner-local/src/drivers/ns-driver';
import { ApiClient } from '../support/api-client';
import { assemble, type Cast } from '../support/cast';

const isRoot = process.getuid?.() === 0;
const NUMBERS = Array.from({ length: 100_000 }, (_, n) => `${n + 1}\n`).join('');
const WAIT = 'while [ ! -e /tmp/go ]; do sleep 0.02; done';

describeUnless(isRoot, 'namespace sandboxes need root on Linux')('a sandbox that dies', () => {
  let cast: Cast;
  let driver: NsDriver;
  afterAll(async () => {
    if (driver) {
      for (const { id } of await driver.list()) await driver.destroy(id);
      await driver.close();
    }
    await releaseAll();
  }, 60_000);

  it('while its runner is away loses no byte that it wrote, nor an end that it recorded', async () => {
    cast = await assemble({ copies: 1 });
    driver = new NsDriver({ ...cast.driver, store: 'plain' });
    const api = new ApiClient(String(cast.gateways[0]), cast.apiKey());
    const policy = { rehydrate: 'never' };
    const session = (await api.post('/v1/sessions', { name: 'remains', policy })).json.id;
    const issue = async (command: string) =>
      (await api.post(`/v1/sessions/${session}/execs`, { command })).json.id;
    const writer = await issue(
      `echo first; ${WAIT}; seq 1 100000; touch /tmp/written; exec sleep 1000`,
    );
    const ender = await issue(`${WAIT}; echo last; exit 3`);
    const logOf = async (exec: string) =>
      (await api.raw(`/v1/sessions/${session}/logs?exec=${exec}&stream=stdout`)).bytes.toString();
    await until(async () => (await logOf(writer)) === 'first\n', { timeoutMs: 60_000 });

    const runner = cast.actors.find(({ name }) => name === 'runner');
    await runner?.kill();
    const [found] = await driver.list();
    if (!found) throw new Error('the sandbox is not there');
    const client = await SupervisorClient.connect(await driver.openPipe(found.id), found.id);
    await client.files.write('/tmp/go', [Buffer.from('')]);
    await until(
      () =>
        client.files.stat('/tmp/written').then(
          () => true,
          () => false,
        ),
      { timeoutMs: 30_000 },
    );
    await until(async () => (await client.state(ender)).outcome.kind === 'exited');
    client.close();
    const [key] = readdirSync(cast.sandboxesDir);
    const pid = readFileSync(join(cast.sandboxesDir, String(key), 'pid'), 'utf8').split(' ')[0];
    process.kill(Number(pid), 'SIGKILL');
    await runner?.start();

    const lost = async () => (await api.get(`/v1/sessions/${session}`)).json.status === 'lost';
    await until(lost, { timeoutMs: 60_000 });
    expect(await logOf(writer)).toBe(`first\n${NUMBERS}`);
    expect(await logOf(ender)).toBe('last\n');
    const execOf = async (exec: string) =>
      (await api.get(`/v1/sessions/${session}/execs/${exec}`)).json;
    expect(await execOf(ender)).toMatchObject({ exit: { kind: 'exited', code: 3 } });
    expect(await execOf(writer)).toMatchObject({ status: 'unknown' });
    await until(() => readdirSync(cast.sandboxesDir).length === 0, { timeoutMs: 30_000 });
  }, 240_000);
});
