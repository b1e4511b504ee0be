import { ReadReq } from '@eventstore/db-client/generated/streams_pb';
import { checkedStreamName } from './proposed-event';
import { CallError, Status } from './status';

export type From = number | 'start' | 'end';

export interface Filter {
  readonly on: 'stream' | 'type';
  readonly prefixes: readonly string[];
  readonly regex: string | undefined;
  /** A checkpoint follows every this many events considered. */
  readonly checkpointEvery: number;
}

export interface ReadRequest {
  /** Undefined: all streams. */
  readonly stream: string | undefined;
  readonly from: From;
  readonly filter: Filter | undefined;
  readonly direction: 'forwards' | 'backwards';
  /** Undefined: a subscription. */
  readonly limit: number | undefined;
  readonly structuredIds: boolean;
}

const MAX_PREFIXES = 256;
const MAX_EXPRESSION_CHARACTERS = 1024;
const DEFAULT_WINDOW = 32;

export function decodeReadReq(message: Buffer): ReadRequest {
  const options = ReadReq.deserializeBinary(message).getOptions();
  if (!options) throw invalid('no options');
  const stream = options.getStream();
  const all = options.getAll();
  if (!stream && !all) throw invalid('neither a stream nor $all is named');
  const subscription = options.hasSubscription();
  if (!subscription && !options.hasCount()) throw invalid('neither a count nor a subscription');
  const backwards = options.getReadDirection() === ReadReq.Options.ReadDirection.BACKWARDS;
  if (subscription && backwards) throw invalid('a subscription only goes forwards');
  const shared = {
    direction: backwards ? 'backwards' : 'forwards',
    limit: subscription ? undefined : Number(options.getCount()),
    structuredIds: options.getUuidOption()?.hasStructured() ?? false,
  } as const;
  if (stream) {
    const name = checkedStreamName(stream.getStreamIdentifier()?.getStreamName_asU8() ?? NO_NAME);
    if (name === '') throw invalid('no stream is named');
    const from = stream.hasRevision() ? Number(stream.getRevision()) : startOrEnd(stream.hasEnd());
    return { ...shared, stream: name, from, filter: undefined };
  }
  const position = all?.getPosition();
  const from = position ? Number(position.getCommitPosition()) : startOrEnd(all?.hasEnd() ?? false);
  const filter = options.getFilter();
  return { ...shared, stream: undefined, from, filter: filter && decodeFilter(filter) };
}

function decodeFilter(options: ReadReq.Options.FilterOptions): Filter {
  const on = options.hasStreamIdentifier() ? 'stream' : 'type';
  const expression = options.getStreamIdentifier() ?? options.getEventType();
  if (!expression) throw invalid('a filter without an expression');
  const prefixes = expression.getPrefixList();
  const regex = expression.getRegex();
  if (prefixes.length === 0 && !regex) throw invalid('a filter without an expression');
  if (
    prefixes.length > MAX_PREFIXES ||
    [...prefixes, regex].some((text) => text.length > MAX_EXPRESSION_CHARACTERS)
  ) {
    throw invalid(
      `a filter may have ${MAX_PREFIXES} prefixes of ${MAX_EXPRESSION_CHARACTERS} characters`,
    );
  }
  const window = options.hasMax() ? options.getMax() : DEFAULT_WINDOW;
  return {
    on,
    prefixes,
    regex: prefixes.length === 0 ? regex : undefined,
    checkpointEvery: Math.max(1, window) * Math.max(1, options.getCheckpointintervalmultiplier()),
  };
}

const NO_NAME = new Uint8Array();
const startOrEnd = (isEnd: boolean): From => (isEnd ? 'end' : 'start');
const invalid = (detail: string): CallError => new CallError(Status.INVALID_ARGUMENT, detail);
