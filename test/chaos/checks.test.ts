import { type ExecSpec, fact, type Recorded } from '@vmux/events';
import { seededRandom } from '@vmux/testing';
import { checkIssued, checkOutcome, type SessionWork } from './exec-check';
import { type Kind, newOperation, type Operation } from './operations';
import { faultsOf } from './relay-check';

const made = (kind: Kind = 'mark', changes: Partial<Operation> = {}): Operation => ({
  ...newOperation(kind, 'chaos-0-0000', 'secret', seededRandom(7)),
  ...{ execId: 'e1', answers: ['e1'], ...changes },
});
const issued = (execId: string, revision: number): Recorded => ({
  event: fact('ExecIssued', { at: 0, execId, epoch: 1, spec: {} as ExecSpec, follows: null }),
  revision,
  metadata: { principal: 'system', correlationId: 'test', version: 1 },
});
const work = (changes: Partial<SessionWork> = {}): SessionWork => ({
  ...{ session: 'chaos-0-0000', operations: [], followers: [] },
  ...{ history: [issued('e1', 0)], isStruck: false, ...changes },
});

describe('of what was asked for', () => {
  const said = (operations: readonly Operation[], history: readonly Recorded[]) => {
    const found: string[] = [];
    checkIssued(work({ operations, history }), (_, what) => found.push(what));
    return found;
  };

  it('one exec for each key is right', () => {
    expect(said([made('mark', { answers: ['e1', 'e1'] })], [issued('e1', 0)])).toEqual([]);
  });

  it.each<[string, Partial<Operation>, readonly string[], RegExp]>([
    ['a second exec under one key', { answers: ['e1', 'e2'] }, ['e1', 'e2'], /one key/],
    ['an exec that nobody was told of', {}, ['e1', 'e2'], /nobody was told of e2/],
    ['an exec that is not in the history', {}, [], /issued 0 times/],
    ['a repeat that was refused', { refusals: ['409'] }, ['e1'], /was refused: 409/],
  ])('%s is found', (_, changes, ids, expected) => {
    expect(said([made('mark', changes)], ids.map(issued)).join('\n')).toMatch(expected);
  });
});

describe('of how an exec ended', () => {
  const said = (
    operation: Operation,
    exit: { kind: string; code?: number },
    { times = 1, epoch = 1, isStruck = false } = {},
  ) => {
    const found: string[] = [];
    const marks = { epoch, counts: new Map([[operation.mark, times]]) };
    const add = (_: string, what: string) => found.push(what);
    checkOutcome(work({ isStruck }), operation, { exit, epoch: 1 }, marks, add);
    return found.join('\n');
  };
  const exited = (code: number) => ({ kind: 'exited', code });

  it('its own code, and one mark, is right', () => {
    expect(said(made('mark', { code: 7 }), exited(7))).toBe('');
    expect(said(made('cancel', { cancelled: 202 }), { kind: 'signalled' })).toBe('');
    expect(said(made(), { kind: 'unknown' }, { times: 0, isStruck: true })).toBe('');
    expect(said(made(), { kind: 'not_started' }, { times: 0, isStruck: true })).toBe('');
  });

  it('what it did not do is found', () => {
    expect(said(made('mark', { code: 7 }), exited(0))).toMatch(/was to end with 7/);
    expect(said(made('mark', { code: 0 }), exited(0), { times: 2 })).toMatch(/ran 2 times/);
    expect(said(made('mark', { code: 0 }), exited(0), { times: 0 })).toMatch(/left 0 marks/);
    expect(said(made('cancel', { cancelled: 202, code: 0 }), exited(0))).toMatch(/ended as/);
    expect(said(made(), { kind: 'signalled' })).toMatch(/nobody cancelled it/);
    expect(said(made(), { kind: 'not_started' })).toMatch(/left 1 marks/);
    expect(said(made(), { kind: 'not_started' }, { times: 0 })).toMatch(/nothing was done to it/);
  });

  it('an exec that ran in a later sandbox as well is found', () => {
    expect(said(made(), { kind: 'unknown' }, { epoch: 2, isStruck: true })).toMatch(
      /given to epoch 1 and ran in epoch 2/,
    );
  });
});

describe('of a copy', () => {
  const told = (name: string) => ({ type: name, subject: `s.${name}`, content: name });
  const truth = new Map([
    [10n, told('A')],
    [20n, told('B')],
  ]);
  const copy = (...positions: bigint[]) =>
    positions.map((position) => ({ position, ...(truth.get(position) ?? told('X')) }));

  it('every event, once, in order, and notices of what was deleted are right', () => {
    const notice = { position: 15n, ...told('SessionDeleted') };
    const [first, second] = copy(10n, 20n);
    expect(
      faultsOf(
        [first, notice, second].flatMap((each) => each ?? []),
        truth,
      ),
    ).toEqual([]);
  });

  it('what is missing, comes twice, out of order, changed or from nowhere is found', () => {
    expect(faultsOf(copy(10n), truth)).toEqual(['lacks 1 of 2 events, first 20 s.B']);
    expect(faultsOf(copy(10n, 10n, 20n), truth)).toEqual(['has 10 twice']);
    expect(faultsOf(copy(20n, 10n), truth)).toEqual(['has 10 after 20']);
    expect(faultsOf(copy(10n, 15n, 20n), truth)).toEqual(['has 15 s.X, which no history has']);
    const changed = copy(10n, 20n).map((each) => ({ ...each, content: 'other' }));
    expect(faultsOf(changed, truth)).toHaveLength(2);
  });
});
