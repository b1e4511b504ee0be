import { EVENT_RELAY_STREAM } from '@vmux/events';
import { releaseAll, until } from '@vmux/testing';
import { startService, startStack } from '../../../test/support/stack';

afterAll(releaseAll);

describe('the metrics of a session service', () => {
  it('say for each copy whether it is kept, and how far it is', async () => {
    const stack = await startStack();
    const { ready } = await startService(stack, 'one', { VMUX_RELAY: 'on' });
    const relayed = async (name: string) => {
      const response = await fetch(`http://127.0.0.1:${ready.healthPort}/metrics`);
      const line = `vmux_session_service_relay_${name}{stream="${EVENT_RELAY_STREAM}"} `;
      return (await response.text()).split('\n').find((each) => each.startsWith(line)) ?? '';
    };
    await until(async () => (await relayed('at_work')).endsWith(' 1'), { timeoutMs: 20_000 });
    expect(await relayed('failed')).toMatch(/ 0$/);
    expect(await relayed('published')).toMatch(/ 0$/);
    expect(await relayed('position')).toMatch(/ -1$/);
  });
});
