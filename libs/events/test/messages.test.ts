import fc from 'fast-check';
import {
  accepted,
  type CommandAccepted,
  type CommandReply,
  Failure,
  Malformed,
  parseCommand,
  parseHeartbeat,
  parseOrder,
  parseReport,
  parseReportSubject,
  Refusal,
  replyOf,
  type SealedOrder,
  unsealOrder,
} from '../src';

const command = {
  type: 'CancelExec',
  sessionId: 'web-0a1b',
  key: 'k'.repeat(22),
  digest: 'a'.repeat(64),
  owner: 'ann',
  principal: 'key:1',
  correlationId: 'r-1',
  traceparent: null,
  at: 1,
  placement: null,
  data: { execId: 'e000000000001', graceMs: 0 },
};

describe('What comes off the wire', () => {
  it('is taken as a command without the fields that are not known', () => {
    const sent = { ...command, surprise: 1, data: { ...command.data, more: true } };
    expect(parseCommand(sent)).toEqual(command);
  });

  it.each([
    ['another type', { ...command, type: 'PlaceSandbox' }, 'command.type'],
    ['a type of the prototype', { ...command, type: 'constructor' }, 'command.type'],
    ['no key', { ...command, key: null }, 'command.key'],
    ['a path for a session', { ...command, sessionId: '../etc' }, 'command.sessionId'],
    ['bad data', { ...command, data: { execId: 'x', graceMs: 0 } }, 'CancelExec data.execId'],
    ['no data', { ...command, data: undefined }, 'CancelExec data'],
  ])('is refused as a command with %s, and the path is named', (_, value, path) => {
    expect(() => parseCommand(value)).toThrow(expect.objectContaining({ code: 'malformed', path }));
  });

  it('is malformed or a message, whatever it is', () => {
    const parsers = [
      parseCommand,
      parseOrder,
      (value: unknown) => parseReport(value, 'local-1', 0),
      (value: unknown) => parseHeartbeat(value, 'local-1'),
    ];
    fc.assert(
      fc.property(fc.anything({ withNullPrototype: true }), (value) => {
        for (const parse of parsers) expect(() => parse(value)).toThrow(Malformed);
      }),
    );
  });

  it('is reported under the name of its subject, not under one of its own', () => {
    const report = parseReport(
      {
        type: 'PortClosed',
        sessionId: 'web-0a1b',
        epoch: 1,
        instance: 'i-1',
        at: 1,
        runnerId: 'forged',
        data: { port: 80 },
      },
      parseReportSubject('vmux.reports.local-1.control').runnerId,
      5,
    );
    expect(report.runnerId).toBe('local-1');
  });

  it('is not reported from the future', () => {
    const sent = { type: 'PortClosed', sessionId: 'web-0a1b', epoch: 1, instance: 'i-1' };
    const at = (time: number) =>
      parseReport({ ...sent, at: time, data: { port: 80 } }, 'local-1', 5).at;
    expect([at(4), at(6)]).toEqual([4, 5]);
  });

  it.each(['vmux.reports.a.b.control', 'vmux.reports.A.control', 'vmux.orders.a.control', ''])(
    'has no reporter on subject %j',
    (subject) => expect(() => parseReportSubject(subject)).toThrow(Malformed),
  );
});

describe('An order', () => {
  it('holds the environment in clear only after unsealing, the exec’s values last', () => {
    const sealed = (text: string) => ({ names: ['A'], keyId: 'k', sealed: text });
    const order: SealedOrder = {
      type: 'StartExec',
      orderId: 'StartExec:web-0a1b:1:e000000000001',
      runnerId: 'local-1',
      sessionId: 'web-0a1b',
      epoch: 1,
      instance: 'i-1',
      data: {
        execId: 'e000000000001',
        spec: {
          command: { kind: 'shell', line: 'true' },
          env: null,
          cwd: null,
          user: null,
          pty: null,
          stdin: false,
          timeoutMs: null,
          keepsAwake: true,
          purpose: 'user',
          service: null,
        },
        env: [sealed('one'), sealed('two')],
      },
    };
    const clear = unsealOrder(order, ({ sealed }) => ({ A: sealed, [sealed]: 'x' }));
    expect(clear.data).toMatchObject({ env: { A: 'two', one: 'x', two: 'x' } });
    expect(parseOrder(JSON.parse(JSON.stringify(clear)))).toEqual(clear);
  });
});

describe('A reply', () => {
  it('gives a refusal and a failure back as they were, and hides any other error', () => {
    const roundTrip = (error: unknown) => {
      const reply: CommandReply = JSON.parse(JSON.stringify(replyOf(error)));
      try {
        return accepted<CommandAccepted>(reply);
      } catch (caught) {
        return caught;
      }
    };
    const refusal = new Refusal('exec_ended', 'it ended', { execId: 'e000000000001' });
    const failure = new Failure('store_unavailable', 'try again', true, 500);
    expect(roundTrip(refusal)).toEqual(refusal);
    expect(roundTrip(failure)).toEqual(failure);
    expect(String(roundTrip(new Error('secret')))).not.toContain('secret');
  });
});
