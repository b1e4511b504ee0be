import { createContext, Script } from 'node:vm';
import type { Filter } from '../protocol/read-request';
import { CallError, Status } from '../protocol/status';

interface Named {
  readonly stream: string;
  readonly type: string;
}

/** Says for each event whether the reader wants it. */
export type Matcher = (events: readonly Named[]) => boolean[];

const MATCH_TIMEOUT_MS = 250;
const sandbox = createContext({ match: undefined });
const runMatch = new Script('match()');

export function matcherOf(filter: Filter): Matcher {
  const subject = filter.on === 'stream' ? (e: Named) => e.stream : (e: Named) => e.type;
  const { prefixes, regex } = filter;
  if (regex === undefined) {
    return (events) =>
      events.map((event) => prefixes.some((prefix) => subject(event).startsWith(prefix)));
  }
  const expression = compiled(regex);
  return (events) => withinTime(() => events.map((event) => expression.test(subject(event))));
}

function compiled(regex: string): RegExp {
  try {
    return new RegExp(regex);
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    throw new CallError(Status.INVALID_ARGUMENT, `the filter is not understood: ${detail}`);
  }
}

/** A client's expression can backtrack for ever; only code run by `vm` can be stopped. */
function withinTime(match: () => boolean[]): boolean[] {
  sandbox.match = match;
  try {
    return runMatch.runInContext(sandbox, { timeout: MATCH_TIMEOUT_MS });
  } catch (error) {
    // Made by `vm` for the other context: not an instance of this one's Error.
    if ((error as { code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') {
      throw new CallError(Status.INVALID_ARGUMENT, 'the filter takes too long to evaluate');
    }
    throw error;
  } finally {
    sandbox.match = undefined;
  }
}
