import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { timeLimit } from '../src';

const collectGarbage = (): void => {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
};

/** Listens to the limit together with another signal, as whoever waits for a caller does. */
const waits = (other: AbortSignal): Promise<unknown> => {
  const either = AbortSignal.any([timeLimit(300), other]);
  return new Promise((resolve) => {
    either.addEventListener('abort', () => resolve(either.reason), { once: true });
  });
};

describe('a time limit', () => {
  it('ends what waits for it or for something else, whatever the garbage collector does', async () => {
    const waiting = Array.from({ length: 20 }, () => waits(new AbortController().signal));
    for (let round = 0; round < 10; round++) {
      collectGarbage();
      await sleep(10);
    }
    for (const reason of await Promise.all(waiting))
      expect(reason).toMatchObject({ name: 'TimeoutError' });
  });
});
