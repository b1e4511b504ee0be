import { StoreUnavailable } from '@vmux/event-store';
import {
  type ClientCommand,
  deriveExecId,
  Refusal,
  type Report,
  scopedKey,
  sessionIdOf,
  sessionStream,
} from '@vmux/events';
import { heartbeatOf } from '../../../test/support/fake-runner';
import { Changes } from '../src/application/changes';
import { CommandHandler } from '../src/application/commands';
import { Deciding } from '../src/application/deciding';
import { LogWriting } from '../src/application/log-writing';
import { Placing } from '../src/application/placing';
import { Runners } from '../src/application/runners';
import { SessionHistory } from '../src/application/session-history';
import { SessionLog } from '../src/application/session-log';
import { Snapshots } from '../src/application/snapshots';
import { execSpecOf, specOf } from './client';
import { MemoryStore } from './memory-store';

const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const now = () => 1_000_000;
const owner = 'alice';
const key = scopedKey(owner, 'create', 'k');
const sessionId = sessionIdOf('guess', owner, key, 0);
const noKeys = {
  ...{ keyOf: fail, seal: fail, unseal: fail, digest: fail, destroy: fail },
};
async function fail(): Promise<never> {
  throw new Error('no key is needed here');
}

/** What one process has of its own; several of them share a store. */
function processOn(store: MemoryStore) {
  const history = new SessionHistory(store, new Snapshots(store), quiet, 1e7);
  const logs = new SessionLog(store, 1e6);
  const writing = new LogWriting(history, logs, quiet);
  const runners = new Runners(now);
  runners.hear(heartbeatOf({ runnerId: 'r1' }));
  const deciding = new Deciding(history, () => undefined);
  const changes = new Changes(deciding, logs, writing, new Placing(runners, now, 0), now);
  const commands = new CommandHandler(changes, history, noKeys, () => true);
  return { history, changes, commands };
}

const command = (type: string, data: object, under: string = key): ClientCommand =>
  ({
    ...{ type, data, sessionId, key: under, digest: 'd'.repeat(64), owner, principal: 'key:1' },
    ...{ correlationId: 'c', traceparent: null, at: now(), placement: null },
  }) as ClientCommand;
const create = () =>
  command('CreateSession', {
    ...{ name: 'guess', attempt: 0, provider: 'ns', spec: specOf(), lineage: null },
  });
const issue = (name: string) => {
  const under = scopedKey(owner, 'exec', name);
  const execId = deriveExecId(sessionId, under);
  return command('IssueExec', { execId, spec: execSpecOf(name) }, under);
};
const report = (type: string, data: object): Report =>
  ({ type, data, at: now(), sessionId, epoch: 1, instance: 'i1', runnerId: 'r1' }) as Report;

const started = async (store: MemoryStore) => {
  const one = processOn(store);
  await one.commands.handle(create());
  await one.changes.report(report('SandboxReady', { base: null, restoredDigest: null }));
  return one;
};
const spied = (store: MemoryStore) => {
  const from: number[] = [];
  const spying = Object.assign(Object.create(store) as MemoryStore, {
    read: (stream: string, options: { from?: number } = {}) => {
      if (stream === sessionStream(sessionId)) from.push(options.from ?? 0);
      return store.read(stream, options);
    },
  });
  return { from, spying };
};

describe('deciding on what this process last knew', () => {
  it('reads nothing when nobody else has written, however long the history is', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    for (let index = 0; index < 600; index += 1) {
      const exec = issue(`exec ${index}`);
      await one.commands.handle(exec);
      const { execId } = exec.data as { execId: string };
      const outcome = { kind: 'exited', code: 0 };
      const sizes = { stdout: 0, stderr: 0, pty: 0 };
      await one.changes.report(report('ExecExited', { execId, outcome, sizes, usage: null }));
    }
    const { length } = store.all;
    store.reads = 0;
    await one.commands.handle(issue('last'));
    expect(store.reads).toBe(0);
    expect(store.all.length).toBe(length + 1);
  });

  it('reads on from there when somebody has, and decides again', async () => {
    const store = new MemoryStore();
    await started(store);
    const { from, spying } = spied(store);
    const two = processOn(spying);
    const other = processOn(store);
    await two.commands.handle(issue('first'));
    from.length = 0;
    await other.commands.handle(issue('second'));
    const answer = await two.commands.handle(issue('third'));
    expect(from).toEqual([answer.revision - 1]);
    const issued = store.all.filter(({ type }) => type === 'ExecIssued');
    expect(issued.map(({ revision }) => revision)).toEqual([
      answer.revision - 2,
      answer.revision - 1,
      answer.revision,
    ]);
  });

  it('refuses nothing for what somebody else has written meanwhile', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    const exec = issue('elsewhere');
    await processOn(store).commands.handle(exec);
    const { execId } = exec.data as { execId: string };
    const cancel = command('CancelExec', { execId, graceMs: 0 }, scopedKey(owner, 'cancel', '1'));
    expect(await one.commands.handle(cancel)).toMatchObject({ ok: true, repeated: false });
  });

  it('has the same state as the replay of everything', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    const two = processOn(store);
    for (let index = 0; index < 20; index += 1)
      await (index % 3 ? one : two).commands.handle(issue(`exec ${index}`));
    for (const { history } of [one, two])
      expect(await history.load(sessionId)).toEqual(await history.replay(sessionId));
  });

  it('reads nothing when all that others wrote has come by', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    const { length } = store.all;
    await processOn(store).commands.handle(issue('elsewhere'));
    for (const event of store.all.slice(length)) one.history.observe(sessionId, event);
    store.reads = 0;
    await one.commands.handle(issue('here'));
    expect(store.reads).toBe(0);
    expect(one.history.guess(sessionId)).toEqual(await one.history.replay(sessionId));
  });

  it('takes no event for the next one that is not', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    const { length } = store.all;
    const other = processOn(store);
    for (const name of ['missed', 'seen']) await other.commands.handle(issue(name));
    const before = one.history.guess(sessionId);
    for (const event of [...store.all.slice(length + 1), ...store.all.slice(0, length)])
      one.history.observe(sessionId, event);
    expect(one.history.guess(sessionId)).toBe(before);
  });

  it('does nothing twice when the store’s answer is lost', async () => {
    const store = new MemoryStore();
    const one = await started(store);
    const append = store.append.bind(store);
    store.append = async (...given) => {
      await append(...given);
      throw new StoreUnavailable('the answer was lost');
    };
    await expect(one.commands.handle(issue('lost'))).rejects.toThrow(StoreUnavailable);
    store.append = append;
    const again = await one.commands.handle(issue('lost'));
    const issued = store.all.filter(({ type }) => type === 'ExecIssued');
    expect(issued.map(({ revision }) => revision)).toEqual([again.revision]);
    expect(await one.commands.handle(issue('lost'))).toEqual({ ...again, repeated: true });
  });

  it('takes the same request in two processes at once for one', async () => {
    const store = new MemoryStore();
    await started(store);
    const [one, two] = [processOn(store), processOn(store)];
    await Promise.all([one.history.load(sessionId), two.history.load(sessionId)]);
    const later = { ...issue('same'), at: now() - 5 };
    const answers = await Promise.all([
      one.commands.handle(issue('same')),
      two.commands.handle(later),
    ]);
    expect(answers.map(({ repeated }) => repeated).sort()).toEqual([false, true]);
    expect(answers[0]?.revision).toBe(answers[1]?.revision);
    for (const { history } of [one, two])
      expect(await history.load(sessionId)).toEqual(await history.replay(sessionId));
  });

  it('is made on the head before anyone gives up, however long the guess took', async () => {
    const { history } = processOn(new MemoryStore());
    const deciding = new Deciding(history, () => undefined);
    const clock = jest.spyOn(Date, 'now');
    const refusal = new Refusal('no_placement', 'no runner');
    const cause = { principal: 'key:1', correlationId: 'c' };
    const changing = deciding.change({
      ...{ sessionId, key, cause, presumedNew: true },
      decide: async () => {
        // Longer than conflicts are borne.
        clock.mockReturnValue(performance.timeOrigin + performance.now() + 60_000);
        throw refusal;
      },
    });
    await expect(changing).rejects.toBe(refusal);
    clock.mockRestore();
  });
});
