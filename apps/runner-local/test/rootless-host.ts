import type { SandboxId, SandboxSpec } from '@vmux/runner-kit';
import { NsDriver } from '../src/drivers/ns-driver';
import type { Answer, Call } from './rootless-driver';

// A driver in a process of a user who is not root, called by a test that is.
const driver = new NsDriver(JSON.parse(process.argv[2] ?? '{}'));
const running = new Map<number, AbortController>();

async function call(method: Call['method'], args: readonly unknown[], signal: AbortSignal) {
  const [first] = args;
  const id = first as SandboxId;
  const closed = { destroyed: true };
  if (method === 'capabilities') return driver.capabilities({ signal });
  if (method === 'create') return driver.create(first as SandboxSpec, { signal });
  if (method === 'list') return driver.list();
  if (method === 'checkpoints') return driver.checkpoints();
  if (method === 'close') return driver.close();
  // The bytes go another way: whether there is a pipe is the question.
  if (method === 'openPipe') return void (await driver.openPipe(id, { signal })).destroy();
  if (method === 'openRemains') return void (await driver.openRemains(id, { signal })).destroy();
  if (method === 'adopt') return driver.adopt(id);
  if (method === 'probe') return driver.probe(id);
  if (method === 'suspend') return driver.suspend(id);
  if (method === 'resume') return driver.resume(id);
  if (method === 'checkpoint') return driver.checkpoint(id);
  if (method === 'removed') return driver.removed(id);
  if (method === 'destroy') return driver.destroy(id);
  return closed;
}

const tell = (answer: Answer) => process.send?.(answer);

process.on('message', ({ number, method, args }: Call) => {
  if (method === 'abort') return running.get(number)?.abort(new Error('given up'));
  const abort = new AbortController();
  running.set(number, abort);
  call(method, args, abort.signal)
    .then(
      (value) => tell({ number, value: value ?? null }),
      (fault: Error) => {
        const facts = JSON.parse(JSON.stringify({ ...fault, message: fault.message }));
        tell({ number, fault: { name: fault.name, ...facts } });
      },
    )
    .finally(() => running.delete(number));
});
process.on('disconnect', () => process.exit(0));
