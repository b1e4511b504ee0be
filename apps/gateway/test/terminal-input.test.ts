import { until } from '@vmux/testing';
import { type OpenedStream, TunnelBroken, TunnelRefused } from '@vmux/tunnel';
import { decode, MalformedMessage } from '../src/attach/frames';
import { TerminalInput } from '../src/attach/terminal-input';

const PLACE = {
  sandbox: { sessionId: 'web-0a1b', epoch: 1, instance: 'i-1' },
  runnerId: 'local',
};

/** A sandbox that takes numbered input once, behind a tunnel that fails when it is told to. */
function sandbox() {
  const state = {
    taken: '',
    sizes: [] as string[],
    acknowledged: [] as number[],
    refused: [] as unknown[],
    full: [] as boolean[],
    places: 0,
    /** Before or after the bytes were taken. */
    faults: [] as { readonly fault: Error; readonly after: boolean }[],
    hold: null as Promise<void> | null,
  };
  const gone = new AbortController();
  const input = new TerminalInput({
    execId: 'e000000000001',
    writer: 7,
    signal: gone.signal,
    streams: {
      open: async (_place, request) => {
        let sent = '';
        const result = async () => {
          await state.hold;
          const next = state.faults.shift();
          if (next && !next.after) throw next.fault;
          if (request.op === 'resize') state.sizes.push(`${request.cols}x${request.rows}`);
          if (request.op === 'stdin')
            state.taken += sent.slice(state.taken.length - request.offset);
          if (next) throw next.fault;
          return { next: state.taken.length };
        };
        let ended: () => void = () => undefined;
        const end = new Promise<void>((resolve) => {
          ended = resolve;
        });
        if (request.op === 'resize') ended();
        return {
          send: async (bytes: Uint8Array) => {
            sent += Buffer.from(bytes).toString();
          },
          end: () => ended(),
          result: end.then(result),
        } as unknown as OpenedStream;
      },
    },
    place: async () => {
      state.places += 1;
      return PLACE;
    },
    taken: (next) => state.acknowledged.push(next),
    refused: (fault) => state.refused.push(fault),
    full: (isFull) => state.full.push(isFull),
  });
  return { input, state, leave: () => gone.abort() };
}

describe('What is typed', () => {
  it('is taken once, also when an answer was lost on its way back', async () => {
    const { input, state } = sandbox();
    state.faults.push(
      { fault: new TunnelBroken('lost'), after: true },
      { fault: new TunnelRefused('unavailable', 'not now'), after: false },
    );
    input.take(0, Buffer.from('hello '));
    input.take(6, Buffer.from('there'));
    await until(() => state.acknowledged.at(-1) === 11);
    expect(state.taken).toBe('hello there');
    expect(state.refused).toEqual([]);
    expect(state.places).toBe(3);
  });

  it('may be sent again and overlap, but not leave anything out', async () => {
    const { input, state } = sandbox();
    expect(input.take(0, Buffer.from('abc'))).toBeNull();
    expect(input.take(1, Buffer.from('bcdef'))).toBeNull();
    expect(input.take(0, Buffer.from('ab'))).toBeNull();
    expect(input.take(9, Buffer.from('x'))).toEqual({ expected: 6 });
    await until(() => state.acknowledged.at(-1) === 6);
    expect(state.taken).toBe('abcdef');
  });

  it('is given up on with the reason when the sandbox will not have it', async () => {
    const { input, state } = sandbox();
    state.faults.push({ fault: new TunnelRefused('exec_ended', 'over'), after: false });
    input.take(0, Buffer.from('abc'));
    await until(() => state.refused.length === 1);
    expect(state.refused[0]).toMatchObject({ code: 'exec_ended' });
    input.take(0, Buffer.from('again'));
    await until(() => state.taken === 'again');
  });

  it('is held back while a program does not read, and is bounded', async () => {
    const { input, state, leave } = sandbox();
    let go: () => void = () => undefined;
    state.hold = new Promise((resolve) => {
      go = resolve;
    });
    for (let at = 0; at < 300_000; at += 50_000) input.take(at, Buffer.alloc(50_000, 'x'));
    expect(state.full.at(-1)).toBe(true);
    go();
    await until(() => state.taken.length === 300_000);
    expect(state.full.at(-1)).toBe(false);
    leave();
  });

  it('comes with the last of several sizes', async () => {
    const { input, state } = sandbox();
    for (let cols = 1; cols <= 50; cols += 1) input.resize({ cols, rows: 10 });
    await until(() => state.sizes.at(-1) === '50x10');
    expect(state.sizes.length).toBeLessThan(4);
  });
});

describe('A message of a client', () => {
  const input = (offset: bigint, text: string) => {
    const head = Buffer.alloc(9);
    head.writeUInt8(17, 0);
    head.writeBigUInt64LE(offset, 1);
    return Buffer.concat([head, Buffer.from(text)]);
  };

  it('is input, a size or a wish to be repainted', () => {
    expect(decode(input(5n, 'é'))).toEqual({ kind: 'input', offset: 5, bytes: Buffer.from('é') });
    expect(decode(Buffer.from([18, 80, 0, 24, 0]))).toEqual({ kind: 'resize', cols: 80, rows: 24 });
    expect(decode(Buffer.from([19]))).toEqual({ kind: 'repaint' });
  });

  it.each([
    ['nothing', Buffer.alloc(0)],
    ['of no known type', Buffer.from([99, 1, 2])],
    ['a server’s', Buffer.from([2, 0, 0, 0, 0, 0, 0, 0, 0, 1])],
    ['input without bytes', input(0n, '')],
    ['input beyond all numbers', input(2n ** 60n, 'x')],
    ['a size of nothing', Buffer.from([18, 0, 0, 24, 0])],
    ['a size too large', Buffer.from([18, 0xff, 0xff, 24, 0])],
    ['half a size', Buffer.from([18, 80, 0])],
    ['a wish with more', Buffer.from([19, 1])],
  ])('that is %s is malformed', (_, message) => {
    expect(() => decode(message)).toThrow(MalformedMessage);
  });
});
