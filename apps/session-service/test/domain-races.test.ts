import {
  LOG_MARK_EVERY,
  type LogEvent,
  NO_OUTPUT,
  type OutputReport,
  Refusal,
  type Report,
  type SessionEvent,
} from '@vmux/events';
import fc from 'fast-check';
import { closeLog, decideOutput, logFenceOf } from '../src/domain/log-fold';
import { EMPTY_LOG, evolveLog, foldLog, type LogState } from '../src/domain/log-state';
import type { Session } from '../src/domain/state';
import { exec, ON_NS, report, SESSION_ID, systemCommand } from './domain-makers';
import {
  appended,
  createSession,
  decideMessage,
  issue,
  type Message,
  metadataOf,
  NOTHING_YET,
  type Past,
} from './domain-spec';

const BYTES = 30;
const source = (number: number): Buffer =>
  Buffer.from(Array.from({ length: BYTES }, (_, index) => (number * 5 + index) % 256));

/** The two streams as the store has them: an append says at which revision it was decided. */
class Store {
  past: Past = NOTHING_YET;
  readonly log: { event: LogEvent; revision: number }[] = [];

  appendToSession(before: Session, events: readonly SessionEvent[], message: Message): boolean {
    if (before.revision !== this.past.session.revision) return false;
    this.past = appended(this.past, events, metadataOf(message));
    return true;
  }

  appendToLog(before: LogState, events: readonly LogEvent[]): boolean {
    if (before.revision !== this.log.length - 1) return false;
    for (const event of events) this.log.push({ event, revision: this.log.length });
    return true;
  }

  /** From the last mark on, as after a restart. */
  get logState(): LogState {
    const last = this.log.findLast(({ event }) => event.type === 'LogMark');
    return foldLog(this.log.slice(last?.revision ?? 0));
  }
}

/** One of several session services: what it knows may be old, and its appends then fail. */
class Service {
  private session: Session = NOTHING_YET.session;
  private log: LogState = EMPTY_LOG;

  constructor(private readonly store: Store) {}

  readSession(): void {
    this.session = this.store.past.session;
  }
  readLog(): void {
    this.log = this.store.logState;
  }

  /** False when it has to be sent again: it was refused, or something else was appended first. */
  take(message: Message): boolean {
    try {
      const decision = decideMessage(message, this.session, this.log);
      if (decision.kind === 'repeated') return true;
      if (!this.store.appendToSession(this.session, decision.events, message)) return false;
      this.session = this.store.past.session;
      return true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.code === 'log_open') this.close();
      return false;
    }
  }

  write(output: OutputReport): void {
    try {
      const { events } = decideOutput(output, this.log, logFenceOf(this.session));
      this.appendToLog(events);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
  }

  private close(): void {
    if (!('current' in this.session) || !this.session.current) return;
    const fence = logFenceOf(this.session);
    try {
      this.appendToLog(closeLog(this.log, fence, this.session.current, 1));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
  }

  private appendToLog(events: readonly LogEvent[]): void {
    if (!this.store.appendToLog(this.log, events)) return;
    for (const event of events)
      this.log = evolveLog(this.log, { event, revision: this.log.revision + 1 });
  }
}

type Deed =
  | { readonly kind: 'readSession' | 'readLog' | 'lose' | 'start'; readonly service: number }
  | { readonly kind: 'issue' | 'exit'; readonly service: number; readonly exec: number }
  | {
      readonly kind: 'write';
      readonly service: number;
      readonly exec: number;
      readonly back: number;
      readonly length: number;
    };

const service = fc.nat({ max: 2 });
const number = fc.nat({ max: 5 });
const plain = (kind: 'readSession' | 'readLog' | 'lose' | 'start') =>
  service.map((chosen): Deed => ({ kind, service: chosen }));
const deed: fc.Arbitrary<Deed> = fc.oneof(
  { weight: 6, arbitrary: plain('readSession') },
  { weight: 8, arbitrary: plain('readLog') },
  { weight: 1, arbitrary: plain('lose') },
  { weight: 2, arbitrary: plain('start') },
  {
    weight: 6,
    arbitrary: fc
      .tuple(service, number)
      .map(([chosen, each]): Deed => ({ kind: 'issue', service: chosen, exec: each })),
  },
  {
    weight: 6,
    arbitrary: fc
      .tuple(service, number)
      .map(([chosen, each]): Deed => ({ kind: 'exit', service: chosen, exec: each })),
  },
  {
    weight: 24,
    arbitrary: fc
      .tuple(service, number, fc.nat({ max: 8 }), fc.integer({ min: 1, max: BYTES }))
      .map(
        ([chosen, each, back, length]): Deed => ({
          kind: 'write',
          service: chosen,
          exec: each,
          back,
          length,
        }),
      ),
  },
);

/** The sandbox of the day: what it knows is what its runner says. */
class Runner {
  epoch = 1;

  said<R extends Report>(message: R): R {
    return { ...message, epoch: this.epoch, instance: `i-${this.epoch}` };
  }

  written(number: number, back: number, length: number, log: LogState): OutputReport {
    const next = log.streams[exec(number)]?.next.stdout ?? 0;
    const offset = Math.max(0, Math.min(next, BYTES - 1) - back);
    return {
      sessionId: SESSION_ID,
      epoch: this.epoch,
      instance: `i-${this.epoch}`,
      runnerId: 'ns-1',
      items: [
        {
          kind: 'chunk',
          execId: exec(number),
          stream: 'stdout',
          offset,
          at: 1,
          bytes: source(number).subarray(offset, offset + length),
        },
      ],
    };
  }
}

function play(deeds: readonly Deed[]): Store {
  const store = new Store();
  const services = [new Service(store), new Service(store), new Service(store)];
  const runner = new Runner();
  const ready = report('SandboxReady', { base: null, restoredDigest: null });
  services[0]?.take(createSession());
  services[0]?.take(ready);
  let issuedCount = 0;
  /** One of those issued lately: open, or ended not long ago. */
  const recent = (pick: number): number => Math.max(0, issuedCount - 1 - (pick % 6));
  for (const each of deeds) {
    const chosen = services[each.service];
    if (!chosen) continue;
    switch (each.kind) {
      case 'readSession':
        chosen.readSession();
        break;
      case 'readLog':
        chosen.readLog();
        break;
      case 'issue':
        if (chosen.take(issue(issuedCount, { placement: ON_NS }))) issuedCount += 1;
        break;
      case 'exit':
        chosen.take(
          runner.said(
            report('ExecExited', {
              execId: exec(recent(each.exec)),
              outcome: { kind: 'exited', code: 0 },
              sizes: { ...NO_OUTPUT, stdout: BYTES },
              usage: null,
            }),
          ),
        );
        break;
      case 'write':
        chosen.write(runner.written(recent(each.exec), each.back, each.length, store.logState));
        break;
      case 'lose': {
        const evidence = { kind: 'probe' as const, message: 'gone' };
        chosen.take(runner.said(report('SandboxLost', { evidence })));
        break;
      }
      case 'start': {
        chosen.take(systemCommand('PlaceSandbox', {}, { placement: ON_NS }));
        const next = { ...ready, epoch: runner.epoch + 1, instance: `i-${runner.epoch + 1}` };
        const before = store.past.session.revision;
        if (chosen.take(next) && store.past.session.revision > before) runner.epoch += 1;
      }
    }
  }
  return store;
}

describe('With several session services that know different pasts', () => {
  it('one that does not know that an exec ended takes none of its output again', () => {
    const store = new Store();
    const [knowing, late] = [new Service(store), new Service(store)];
    const runner = new Runner();
    const write = (service: Service, execNumber: number, offset: number, length: number) =>
      service.write({
        ...runner.written(execNumber, 0, length, EMPTY_LOG),
        items: [
          {
            kind: 'chunk',
            execId: exec(execNumber),
            stream: 'stdout',
            offset,
            at: 1,
            bytes: Buffer.alloc(length),
          },
        ],
      });
    knowing.take(createSession());
    knowing.take(report('SandboxReady', { base: null, restoredDigest: null }));
    knowing.take(issue(1));
    knowing.take(issue(2));
    late.readSession();
    write(knowing, 1, 0, BYTES);
    const sizes = { ...NO_OUTPUT, stdout: BYTES };
    const outcome = { kind: 'exited' as const, code: 0 };
    knowing.take(report('ExecExited', { execId: exec(1), outcome, sizes, usage: null }));
    for (let offset = 0; offset < LOG_MARK_EVERY; offset += 1) write(knowing, 2, offset, 1);
    expect(Object.keys(store.logState.streams)).toEqual([exec(2)]);

    const before = store.log.length;
    late.readLog();
    write(late, 1, 0, BYTES);
    expect(store.log).toHaveLength(before);
  });

  const seen = { marks: 0, unknown: 0, exited: 0, laterEpochs: 0 };
  afterAll(() => {
    expect(Object.entries(seen).filter(([, count]) => count < 50)).toEqual([]);
  });

  it('output stays exact, and an exec’s end says exactly how much of it there is', () => {
    fc.assert(
      fc.property(fc.array(deed, { minLength: 150, maxLength: 500, size: 'max' }), (deeds) => {
        const { past, log } = play(deeds);
        const bytes = new Map<string, Buffer>();
        for (const { event } of log) {
          if (event.type === 'LogMark') seen.marks += 1;
          if (event.type === 'LogMark' && event.epoch > 1) seen.laterEpochs += 1;
          if (event.type !== 'LogChunk') continue;
          const before = bytes.get(event.execId) ?? Buffer.alloc(0);
          expect(event.offset).toBe(before.length);
          bytes.set(event.execId, Buffer.concat([before, event.bytes]));
        }
        for (const [execId, written] of bytes) {
          const all = source(Number(execId.slice(1)));
          expect(written.equals(all.subarray(0, written.length))).toBe(true);
        }
        for (const { event } of past.history) {
          if (event.type !== 'ExecExited' && event.type !== 'ExecOutcomeUnknown') continue;
          if (event.type === 'ExecExited') seen.exited += 1;
          else seen.unknown += 1;
          expect(event.data.sizes.stdout).toBe(bytes.get(event.data.execId)?.length ?? 0);
        }
      }),
      { numRuns: 80 },
    );
  });
});
