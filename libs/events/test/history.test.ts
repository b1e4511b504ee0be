import {
  CURRENT_VERSIONS,
  decode,
  decodeForDeciding,
  decodeLogEvent,
  encode,
  encodeLogEvent,
  fact,
  type LogEvent,
  Malformed,
  UnknownEvent,
} from '../src';

const metadata = { principal: 'key:1', correlationId: 'r-1', key: 'k'.repeat(22) };
const stored = {
  ...encode(fact('PortClosed', { at: 1, epoch: 1, port: 80 }), metadata),
  revision: 7,
};

describe('A stored event', () => {
  it('comes back as it went in', () => {
    const {
      event,
      revision,
      metadata: kept,
    } = decodeForDeciding(JSON.parse(JSON.stringify(stored)));
    expect(event).toEqual(fact('PortClosed', { at: 1, epoch: 1, port: 80 }));
    expect(revision).toBe(7);
    expect(kept).toEqual({ ...metadata, version: 1 });
  });

  it('of an unknown type stops whoever decides and is passed over by whoever only shows', () => {
    const unknown = { ...stored, type: 'SessionTranscended' };
    expect(decode(unknown)).toBeNull();
    expect(() => decodeForDeciding(unknown)).toThrow(UnknownEvent);
  });

  it('of an old version is brought to today’s shape, step by step', () => {
    const knowledge = {
      versions: { ...CURRENT_VERSIONS, PortClosed: 3 },
      upcasts: {
        'PortClosed@1': (data: object) => ({ ...data, protocol: 'tcp' }),
        'PortClosed@2': (data: object) => ({ ...data, family: 6 }),
      },
    };
    const recorded = decode(stored, knowledge);
    expect(recorded?.event.data).toEqual({ at: 1, epoch: 1, port: 80, protocol: 'tcp', family: 6 });
    expect(recorded?.metadata.version).toBe(3);
    expect(decode(stored, { ...knowledge, upcasts: {} })).toBeNull();
  });

  it('of a later version is unknown', () => {
    const later = { ...stored, metadata: { ...stored.metadata, version: 2 } };
    expect(decode(later)).toBeNull();
    expect(() => decodeForDeciding(later)).toThrow(UnknownEvent);
  });

  it('without a readable envelope is malformed', () => {
    expect(() => decode({ ...stored, metadata: {} })).toThrow(Malformed);
    expect(() => decode({ ...stored, data: 'text' })).toThrow(Malformed);
  });
});

describe('A stored log event', () => {
  const events: LogEvent[] = [
    {
      type: 'LogChunk',
      execId: 'e000000000001',
      stream: 'stdout',
      offset: 3,
      sessionOffset: 9,
      at: 1,
      issued: 4,
      bytes: Buffer.from([0, 255, 10]),
    },
    {
      type: 'LogMark',
      epoch: 1,
      instance: 'i-1',
      closed: false,
      sessionOffset: 12,
      streams: { e000000000001: { next: { stdout: 6, stderr: 0, pty: 0 }, resizes: 0, issued: 4 } },
      segments: [{ revision: 0, sessionOffset: 0 }],
      firstOffset: 0,
      sessionRevision: 8,
      at: 1,
    },
    { type: 'LogTruncated', revision: 64, firstOffset: 5, droppedBytes: 5, at: 1 },
  ];

  it.each(events.map((event) => [event.type, event] as const))(
    'of type %s comes back as it went in',
    (_, event) => expect(decodeLogEvent(encodeLogEvent(event))).toEqual(event),
  );

  it('of an unknown type is null', () => {
    expect(decodeLogEvent({ type: 'LogPoem', data: {}, metadata: {} })).toBeNull();
  });
});
