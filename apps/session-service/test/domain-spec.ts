import {
  type ClientCommand,
  type CommandNamed,
  type EventMetadata,
  fact,
  type Recorded,
  Refusal,
  type RefusalCode,
  type Report,
  type SessionEvent,
  type SystemCommand,
} from '@vmux/events';
import { type Decision, decideCommand, decideReport } from '../src/domain/decide';
import { fold } from '../src/domain/evolve';
import { closeLog, logFenceOf } from '../src/domain/log-fold';
import { EMPTY_LOG, evolveLog, type LogState } from '../src/domain/log-state';
import { react } from '../src/domain/react';
import type { Session } from '../src/domain/state';
import { command, EXEC, exec, ON_NS, OWNER, placementOn, SESSION_ID, SPEC } from './domain-makers';

export type Message = ClientCommand | SystemCommand | Report;

export const isReport = (message: Message): message is Report => 'epoch' in message;

export const decideMessage = (message: Message, session: Session, log: LogState): Decision =>
  isReport(message)
    ? { kind: 'append', events: decideReport(message, session, log) }
    : decideCommand(message, session, log);

export const metadataOf = (message: Message, version = 1): EventMetadata => ({
  principal: isReport(message) ? `runner:${message.runnerId}` : message.principal,
  correlationId: 'r-1',
  version,
  ...('key' in message ? { key: message.key, digest: message.digest } : {}),
});

/** Events, or messages that are decided on what stands before them. */
export type Given = SessionEvent | Message;

const isEvent = (given: Given): given is SessionEvent => 'version' in given;

export interface Past {
  readonly history: readonly Recorded[];
  readonly session: Session;
  readonly log: LogState;
}

/** What the session service does: closes the log where that has to come first. */
export function step(past: Past, message: Message): Past & { readonly decision: Decision } {
  try {
    const decision = decideMessage(message, past.session, past.log);
    const events = decision.kind === 'append' ? decision.events : [];
    return { ...appended(past, events, metadataOf(message)), decision };
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== 'log_open') throw error;
    return step({ ...past, log: closed(past) }, message);
  }
}

export function appended(
  past: Past,
  events: readonly SessionEvent[],
  metadata: EventMetadata,
): Past {
  const recorded = events.map((event, index) => ({
    event,
    revision: past.session.revision + 1 + index,
    metadata,
  }));
  return {
    ...past,
    history: [...past.history, ...recorded],
    session: fold(recorded, past.session),
  };
}

export function closed({ session, log }: Past): LogState {
  if (!('current' in session) || !session.current) return log;
  return closeLog(log, logFenceOf(session), session.current, 0).reduce(
    (state, event) => evolveLog(state, { event, revision: state.revision + 1 }),
    log,
  );
}

export const NOTHING_YET: Past = { history: [], session: fold([]), log: EMPTY_LOG };

export function past(...given: readonly Given[]): Past {
  return given.reduce<Past>(
    (before, each) =>
      isEvent(each)
        ? appended(before, [each], { principal: 'system', correlationId: 'r-1', version: 1 })
        : step(before, each),
    NOTHING_YET,
  );
}

/** given(what happened).when(what comes).thenHappens(what follows) */
export function given(...happened: readonly Given[]) {
  let before = past(...happened);
  const outcome = {
    withLog(change: Partial<LogState>) {
      before = { ...before, log: { ...before.log, ...change } };
      return outcome;
    },
    when(message: Message) {
      const result = attempt(() => step(before, message));
      return {
        thenHappens(...expected: readonly SessionEvent[]) {
          expect(result).toMatchObject({ decision: { kind: 'append', events: expected } });
          expect(newEvents(result)).toHaveLength(expected.length);
        },
        thenTypes(...types: readonly SessionEvent['type'][]) {
          expect(newEvents(result).map(({ type }) => type)).toEqual(types);
          return result as Past;
        },
        thenNothing() {
          expect(result).toMatchObject({ decision: { kind: 'append', events: [] } });
        },
        thenRepeats(revision: number) {
          expect(result).toMatchObject({ decision: { kind: 'repeated', revision } });
        },
        thenRefused(code: RefusalCode, facts: object = {}) {
          expect(result).toBeInstanceOf(Refusal);
          expect(result).toMatchObject({ code, facts });
        },
      };
    },
    /** The types of the orders that are owed, and to whom. */
    thenOwes(...orders: readonly string[]) {
      const owed = react(before.session, 0).orders;
      expect(owed.map(({ type, runnerId }) => `${type} ${runnerId}`)).toEqual(orders);
    },
    get session() {
      return before.session;
    },
  };
  return outcome;
}

const newEvents = (result: unknown): readonly SessionEvent[] => {
  if (result instanceof Error) throw result;
  const { decision } = result as { decision: Decision };
  return decision.kind === 'append' ? decision.events : [];
};

function attempt<T>(act: () => T): T | Refusal {
  try {
    return act();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

/** Histories to begin with. */
export const createSession = (
  change: Partial<CommandNamed<'CreateSession'>['data']> = {},
  placement = ON_NS,
): ClientCommand =>
  command(
    'CreateSession',
    { name: 'web', attempt: 0, provider: 'ns', spec: SPEC, lineage: null, ...change },
    { placement },
  );

export const created = (policy: Partial<typeof SPEC.policy> = {}): SessionEvent =>
  fact('SessionCreated', {
    at: 0,
    sessionId: SESSION_ID,
    owner: OWNER,
    name: 'web',
    attempt: 0,
    provider: 'ns',
    spec: { ...SPEC, policy: { ...SPEC.policy, ...policy } },
    lineage: null,
  });

export const requested = (
  epoch = 1,
  change: Partial<Extract<SessionEvent, { type: 'SandboxRequested' }>['data']> = {},
): SessionEvent =>
  fact('SandboxRequested', {
    at: 0,
    epoch,
    ...ON_NS,
    purpose: 'create',
    restore: null,
    allowBaseChange: false,
    ...change,
  });

export const sandboxStarted = (epoch = 1, runnerId = 'ns-1'): SessionEvent =>
  fact('SandboxStarted', {
    at: 0,
    epoch,
    instance: `i-${epoch}`,
    runnerId,
    base: null,
    restored: null,
  });

export const running = (
  policy: Partial<typeof SPEC.policy> = {},
  capabilities = ON_NS.capabilities,
): SessionEvent[] => [created(policy), requested(1, { capabilities }), sandboxStarted()];

export const issued = (number: number, epoch: number | null = 1, spec = EXEC): SessionEvent =>
  fact('ExecIssued', { at: 0, execId: exec(number), epoch, spec, follows: null });

export const issue = (number: number, change: Partial<ClientCommand> = {}): ClientCommand =>
  command(
    'IssueExec',
    { execId: exec(number), spec: EXEC },
    { key: `issue-${number}`.padEnd(22, '_'), ...change },
  );

export { placementOn };
