import { until } from '@vmux/testing';
import type { ExecView } from '../src/application/exec-view';
import type { ExecWaiting } from '../src/application/exec-waiting';
import type { LogItem } from '../src/application/log-cursor';
import type { LogEnd, LogReader, LogRequest } from '../src/application/log-reader';
import { MAX_REPLAY_BYTES, Screens } from '../src/attach/screens';

/** Terminals that wrote so much, all of it one letter and then a word, and who asked for it from where. */
function stage(written: number) {
  const asked: number[] = [];
  const logs = {
    open: async ({ offset }: LogRequest): Promise<AsyncGenerator<LogItem, LogEnd>> => {
      asked.push(offset);
      return (async function* () {
        const bytes = Buffer.from(`${'x'.repeat(79)}\r\nthe end`);
        if (offset < written)
          yield {
            ...{ kind: 'bytes' as const, execId: 'e', stream: 'pty' as const, at: 0, revision: 0 },
            ...{ offset: written - bytes.length, bytes },
          };
        return { next: written, over: true };
      })();
    },
  };
  const store = {
    read: async function* () {
      yield {
        ...{ revision: 0, position: 0n, type: 'LogTruncated', metadata: {} },
        data: { revision: 0, firstOffset: 0, droppedBytes: 0, at: 0 },
      };
    },
  };
  const execs = { specOf: async () => ({ pty: { cols: 1000, rows: 1000 } }) };
  const screens = new Screens(
    store as never,
    logs as unknown as LogReader,
    execs as unknown as ExecWaiting,
  );
  const exec = (id: string) => ({ id, sizes: { stdout: 0, stderr: 0, pty: written } }) as ExecView;
  return { screens, exec, asked };
}

describe('The screens of terminals', () => {
  it('replay the tail of a long output, and then only what is new', async () => {
    const written = 1_000_000_000;
    const { screens, exec, asked } = stage(written);
    const painted = await screens.paint('web-0a1b', exec('e1'), 0);
    expect(asked).toEqual([written - MAX_REPLAY_BYTES]);
    expect(painted.offset).toBe(written);
    expect(painted.bytes.toString()).toContain('the end');
    await screens.paint('web-0a1b', exec('e1'), 0);
    expect(asked).toEqual([written - MAX_REPLAY_BYTES, written]);
  });

  it('are forgotten, the oldest first, when they take too much together', async () => {
    const { screens, exec, asked } = stage(1000);
    for (const id of ['e1', 'e2', 'e3', 'e4', 'e5']) await screens.paint('web-0a1b', exec(id), 0);
    expect(asked).toEqual([0, 0, 0, 0, 0]);
    await screens.paint('web-0a1b', exec('e5'), 0);
    await screens.paint('web-0a1b', exec('e1'), 0);
    expect(asked.slice(5)).toEqual([1000, 0]);
  });

  it('are painted one after the other, and once for all who ask meanwhile', async () => {
    const { screens, exec, asked } = stage(1000);
    const first = screens.paint('web-0a1b', exec('e1'), 0);
    await until(() => asked.length === 1);
    const painted = await Promise.all(
      Array.from({ length: 50 }, (_, at) => screens.paint('web-0a1b', exec('e1'), at % 2)),
    );
    expect(new Set([await first, ...painted].map(({ bytes }) => bytes.toString())).size).toBe(1);
    // The first, and one for each of two lengths of scrollback.
    expect(asked).toEqual([0, 1000, 1000]);
  });
});
