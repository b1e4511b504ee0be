import fc from 'fast-check';
import { decodeOutput, encodeOutput, Malformed, type OutputItem, type OutputMessage } from '../src';

const execId = fc.stringMatching(/^e[0-9a-f]{12}$/);
const offset = fc.nat();
const item: fc.Arbitrary<OutputItem> = fc.oneof(
  fc.record({
    kind: fc.constant('chunk' as const),
    execId,
    stream: fc.constantFrom('stdout' as const, 'stderr' as const, 'pty' as const),
    offset,
    at: offset,
    bytes: fc.uint8Array({ minLength: 1, maxLength: 300 }),
  }),
  fc.record({
    kind: fc.constant('gap' as const),
    execId,
    stream: fc.constantFrom('stdout' as const, 'stderr' as const),
    from: offset,
    to: offset,
    reason: fc.constant('disk lost'),
    at: offset,
  }),
  fc.record({
    kind: fc.constant('resize' as const),
    execId,
    number: offset,
    offset,
    cols: fc.integer({ min: 1, max: 500 }),
    rows: fc.integer({ min: 1, max: 500 }),
    at: offset,
  }),
);
const message: fc.Arbitrary<OutputMessage> = fc.record({
  sessionId: fc.constant('web-0a1b'),
  epoch: fc.integer({ min: 1, max: 99 }),
  instance: fc.constant('i-1'),
  items: fc.array(item, { maxLength: 20 }),
});

const plain = ({ items, ...rest }: OutputMessage) => ({
  ...rest,
  items: items.map((each) =>
    each.kind === 'chunk' ? { ...each, bytes: Buffer.from(each.bytes).toString('hex') } : each,
  ),
});

describe('An output frame', () => {
  it('carries any bytes exactly, and the name of the runner that the subject gives', () => {
    fc.assert(
      fc.property(message, (sent) => {
        const { runnerId, ...got } = decodeOutput(encodeOutput(sent), 'local-1');
        expect(runnerId).toBe('local-1');
        expect(plain(got)).toEqual(plain(sent));
      }),
    );
  });

  it('that is cut anywhere is malformed', () => {
    const frame = encodeOutput({
      sessionId: 'web-0a1b',
      epoch: 1,
      instance: 'i-1',
      items: [
        {
          kind: 'chunk',
          execId: 'e000000000001',
          stream: 'stdout',
          offset: 0,
          at: 1,
          bytes: Buffer.from('hello'),
        },
      ],
    });
    for (let length = 0; length < frame.length; length += 1)
      expect(() => decodeOutput(frame.subarray(0, length), 'local-1')).toThrow(Malformed);
  });

  it('of garbage is malformed and nothing else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (garbage, withMagic) => {
        const frame = withMagic ? Buffer.from([0x56, 1, 0, 0, 0, 5, ...garbage]) : garbage;
        expect(() => decodeOutput(frame, 'local-1')).toThrow(Malformed);
      }),
    );
  });

  it('is not made of more bytes than a frame may carry', () => {
    const bytes = Buffer.alloc(64 * 1024);
    const items = Array.from(
      { length: 9 },
      (_, index): OutputItem => ({
        kind: 'chunk',
        execId: 'e000000000001',
        stream: 'stdout',
        offset: index * bytes.length,
        at: 1,
        bytes,
      }),
    );
    expect(() => encodeOutput({ sessionId: 'web-0a1b', epoch: 1, instance: 'i', items })).toThrow(
      /at most 524288 bytes/,
    );
  });
});
