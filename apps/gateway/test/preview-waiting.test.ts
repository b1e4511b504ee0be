import type { MakingStage } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import type { FakeRunner } from '../../../test/support/fake-runner';
import { PreviewClient } from '../../../test/support/preview-client';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

const PORT = 8000;
let stack: Stack;
let runner: FakeRunner;
let gateway: Gateway;

beforeAll(async () => {
  stack = await startStack();
  runner = startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack);
}, 60_000);
afterAll(releaseAll);

/** What the page is told, as it comes. */
function told(client: PreviewClient) {
  const seen = { text: '', ended: false };
  const call = client.open('/.vmux/preview/events');
  call.on('response', (response) => {
    response.on('data', (piece: Buffer) => {
      seen.text += piece;
    });
    response.on('end', () => {
      seen.ended = true;
    });
  });
  call.end();
  return seen;
}

describe('A page that waits for a sandbox in the making', () => {
  it('is told how far its runner says that it has come, until the port listens', async () => {
    const { api } = gateway;
    runner.acts.CreateSandbox = () => undefined;
    const { id } = (await api.post('/v1/sessions', { name: 'made', ports: [PORT] })).json;
    const order = await until(() => runner.ordersOf('CreateSandbox', id)[0]);
    const says = (stage: MakingStage) => {
      runner.making = [{ sessionId: id, epoch: order.epoch, stage, since: 0, detail: null }];
    };
    const { token } = (await api.post(`/v1/sessions/${id}/ports/${PORT}/token`, {})).json;
    const page = told(new PreviewClient(api.url, id, PORT, token));
    const state = (...stages: readonly string[]) =>
      `event: state\ndata: ${JSON.stringify({ status: 'starting', stages })}\n\n`;
    says('building');
    await until(() => page.text.includes(state('building')));
    says('queued');
    await until(() => page.text.includes(state('queued')));
    runner.making = [];
    await until(() => page.text.endsWith(state()));

    const sandbox = { sessionId: id, epoch: order.epoch, instance: 'i-1' };
    await runner.report(sandbox, 'SandboxReady', { base: null, restoredDigest: null });
    expect(page.ended).toBe(false);
    const listens = { port: PORT, address: '127.0.0.1', execId: null };
    await runner.report(sandbox, 'PortOpened', listens);
    await until(() => page.ended);
    expect(page.text).toMatch(/event: ready\ndata: {}\n\n$/);
  });
});
