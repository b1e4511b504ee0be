import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import { TerminalClient, type TerminalOptions } from '../support/terminal-client';
import { Terminals } from '../support/terminals';

describeOnStack()('a terminal and who may attach to it', (stack) => {
  let terminals: Terminals;
  beforeAll(async () => {
    terminals = await Terminals.of(stack);
  }, 90_000);
  afterEach(() => terminals.closeAll());

  it('is watched by who may only read, and not seen by others, from nowhere or from another site', async () => {
    const exec = await terminals.start();
    const reader = await stack.api.post('/v1/api-keys', {
      name: 'reader',
      scopes: ['sessions:read'],
    });
    const watcher = await terminals.attached(exec, {
      key: reader.json.key,
      query: { cols: 33, rows: 11 },
    });
    await until(() => watcher.hello, { timeoutMs: 10_000 });
    expect(watcher.hello.mode).toBe('watch');
    watcher.type('x');
    await until(() => watcher.errors.length > 0, { timeoutMs: 10_000 });
    expect(watcher.errors[0]).toMatchObject({ code: 'forbidden', fatal: false });
    expect(watcher.resizes).toEqual([]);

    const refusal = async (options: TerminalOptions, path = terminals.pathOf(exec)) => {
      const { status } = await TerminalClient.open(stack.api.url, path, options).catch(
        (fault) => fault,
      );
      return status;
    };
    const key = stack.api.key;
    expect(await refusal({})).toBe(401);
    expect(await refusal({ key: `${key}x` })).toBe(401);
    expect(await refusal({ key, headers: { origin: 'http://evil.example' } })).toBe(403);
    expect(await refusal({ key, headers: { host: 'evil.example' } })).toBe(421);
    expect(await refusal({ key, query: { cols: 0, rows: 1 } })).toBe(400);
    expect(await refusal({ key, query: { offset: '-1' } })).toBe(400);
    expect(await refusal({ key, query: { what: 1 } })).toBe(400);
    expect(await refusal({ key }, terminals.pathOf('e000000000000'))).toBe(404);
    const stranger = await stack.api.post('/v1/api-keys', {
      ...{ name: 'stranger', owner: 'stranger', scopes: ['sessions:read', 'sessions:write'] },
    });
    expect(await refusal({ key: stranger.json.key })).toBe(404);
    const plain = await stack.session(terminals.session).start('sleep 1000');
    expect(await refusal({ key }, terminals.pathOf(plain))).toBe(409);

    const { json } = await stack.api.post(`/v1/sessions/${terminals.session}/tickets`);
    const browser = { query: { ticket: json.ticket }, headers: { origin: stack.api.url } };
    const ticketed = await terminals.attached(exec, { key: null, ...browser });
    ticketed.type('echo from a $((1 + 1))nd browser\n');
    await watcher.shows(/from a 2nd browser/);
    expect(await refusal(browser)).toBe(401);

    await stack.api.call('DELETE', `/v1/api-keys/${reader.json.id}`);
    await watcher.ended();
    expect(watcher.closed?.code).toBe(1008);
    for (const each of [exec, plain]) await terminals.cancel(each);
  }, 60_000);

  it('is open to a share to watch or to type, until it is revoked', async () => {
    const exec = await terminals.start();
    const shared = async (rights: readonly string[]) =>
      (await stack.api.post(`/v1/sessions/${terminals.session}/shares`, { rights })).json;
    const [watch, type, logs] = [
      await shared(['watch']),
      await shared(['type']),
      await shared(['logs']),
    ];
    const watcher = await terminals.attached(exec, { key: watch.token });
    const typist = await terminals.attached(exec, {
      key: type.token,
      query: { cols: 90, rows: 25 },
    });
    await expect(terminals.attached(exec, { key: logs.token })).rejects.toMatchObject({
      status: 403,
    });
    typist.type('echo shared $((1 + 1))\n');
    await watcher.shows(/^shared 2$/m);
    expect([watcher.hello.mode, typist.hello.mode]).toEqual(['watch', 'type']);
    watcher.type('x');
    await until(() => watcher.errors.length > 0, { timeoutMs: 10_000 });
    expect(watcher.errors[0]).toMatchObject({ code: 'forbidden', fatal: false });
    await stack.api.call('DELETE', `/v1/sessions/${terminals.session}/shares/${type.id}`);
    await typist.ended();
    expect(typist.closed?.code).toBe(1008);
    expect(watcher.closed).toBeNull();
    await expect(terminals.attached(exec, { key: type.token })).rejects.toMatchObject({
      status: 401,
    });
    await terminals.cancel(exec);
  }, 60_000);
});
