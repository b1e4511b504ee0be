import { Empty, StreamIdentifier } from '@eventstore/db-client/generated/shared_pb';
import { ReadReq } from '@eventstore/db-client/generated/streams_pb';
import { FRAME_HEADER_BYTES } from './frames';
import type { JsonObject, RecordedEvent } from './port';
import { Reader, Writer } from './wire';

/** One message of a read or a subscription. */
export type ReadItem =
  | { readonly kind: 'event'; readonly event: RecordedEvent }
  | { readonly kind: 'checkpoint'; readonly position: bigint }
  | { readonly kind: 'caughtUp' }
  | { readonly kind: 'notFound' }
  | { readonly kind: 'other' };

const other: ReadItem = { kind: 'other' };

/** The form of a ReadResp that the rest of this library works with. */
export function readItem(message: Buffer): ReadItem {
  const reader = new Reader(message);
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) {
      const event = recordedEvent(reader.message());
      return event ? { kind: 'event', event } : other;
    }
    if (field === 3) return { kind: 'checkpoint', position: firstNumber(reader.message()) };
    if (field === 4) return { kind: 'notFound' };
    if (field === 8) return { kind: 'caughtUp' };
    reader.skip();
  }
  return other;
}

function firstNumber(reader: Reader): bigint {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) return reader.bigint();
    reader.skip();
  }
  return 0n;
}

function recordedEvent(reader: Reader): RecordedEvent | undefined {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) return eventIn(reader.message());
    reader.skip();
  }
  return undefined;
}

const nothing = Buffer.alloc(0);

function eventIn(reader: Reader): RecordedEvent {
  let id = '';
  let stream = '';
  let revision = 0;
  let position = 0n;
  let type = '';
  let isJson = false;
  let created = '';
  let custom: Buffer = nothing;
  let data: Buffer = nothing;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) id = uuidIn(reader.message());
    else if (field === 2) stream = streamName(reader.message());
    else if (field === 3) revision = reader.number();
    else if (field === 5) position = reader.bigint();
    else if (field === 6) {
      const entry = reader.message();
      let key = '';
      let value = '';
      for (let part = entry.next(); part !== 0; part = entry.next()) {
        if (part === 1) key = entry.ascii();
        else if (part === 2) value = entry.text();
        else entry.skip();
      }
      if (key === 'type') type = value;
      else if (key === 'content-type') isJson = value === 'application/json';
      else if (key === 'created') created = value;
    } else if (field === 7) custom = reader.bytes();
    else if (field === 8) data = reader.bytes();
    else reader.skip();
  }
  return {
    stream,
    revision,
    position,
    id,
    type,
    data: isJson ? parsed(data) : data,
    metadata: custom.length === 0 ? {} : parsed(custom),
    recordedAt: new Date(Number(created.slice(0, -TICKS_PER_MS_DIGITS))),
  };
}

/** `created` counts ticks of 100 ns since the epoch: more than a double holds exactly. */
const TICKS_PER_MS_DIGITS = 4;

/** Another writer may have stored what is not a JSON object: it is shown as it is under one name. */
function parsed(bytes: Buffer): JsonObject {
  if (bytes.length === 0) return {};
  try {
    const value = JSON.parse(bytes.toString());
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
    return { value };
  } catch {
    return { base64: bytes.toString('base64') };
  }
}

function uuidIn(reader: Reader): string {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 2) return reader.ascii();
    reader.skip();
  }
  return '';
}

function streamName(reader: Reader): string {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 3) return reader.text();
    reader.skip();
  }
  return '';
}

export function readFrame(request: ReadReq): Buffer {
  const message = request.serializeBinary();
  return new Writer(FRAME_HEADER_BYTES + message.length)
    .frameHeader(message.length)
    .raw(message)
    .finish();
}

export interface StreamRange {
  readonly from: number | undefined;
  readonly direction: 'forwards' | 'backwards';
  readonly limit: number;
}

export function streamReadRequest(
  stream: string,
  { from, direction, limit }: StreamRange,
): ReadReq {
  const options = baseOptions();
  const target = streamOptions(stream);
  if (from !== undefined) target.setRevision(String(from));
  else if (direction === 'backwards') target.setEnd(new Empty());
  else target.setStart(new Empty());
  options.setStream(target);
  options.setNoFilter(new Empty());
  options.setReadDirection(
    direction === 'backwards'
      ? ReadReq.Options.ReadDirection.BACKWARDS
      : ReadReq.Options.ReadDirection.FORWARDS,
  );
  // The client's own "no limit" as well: the protocol has no word for it.
  options.setCount(Number.isFinite(limit) ? String(limit) : String(Number.MAX_SAFE_INTEGER));
  return request(options);
}

export function streamSubscriptionRequest(stream: string, after: number | undefined): ReadReq {
  const options = baseOptions();
  const target = streamOptions(stream);
  if (after === undefined) target.setStart(new Empty());
  else target.setRevision(String(after));
  options.setStream(target);
  options.setNoFilter(new Empty());
  options.setSubscription(new ReadReq.Options.SubscriptionOptions());
  return request(options);
}

/** Checkpoints come every window × multiplier events that the server has considered. */
const SEARCH_WINDOW = 32;
const CHECKPOINT_MULTIPLIER = 8;

export function prefixSubscriptionRequest(
  prefixes: readonly string[],
  after: bigint | undefined,
): ReadReq {
  const options = baseOptions();
  const all = new ReadReq.Options.AllOptions();
  if (after === undefined) all.setStart(new Empty());
  else {
    const position = new ReadReq.Options.Position();
    position.setCommitPosition(String(after));
    position.setPreparePosition(String(after));
    all.setPosition(position);
  }
  options.setAll(all);
  const expression = new ReadReq.Options.FilterOptions.Expression();
  expression.setPrefixList([...prefixes]);
  const filter = new ReadReq.Options.FilterOptions();
  filter.setStreamIdentifier(expression);
  filter.setMax(SEARCH_WINDOW);
  filter.setCheckpointintervalmultiplier(CHECKPOINT_MULTIPLIER);
  options.setFilter(filter);
  options.setSubscription(new ReadReq.Options.SubscriptionOptions());
  return request(options);
}

function streamOptions(stream: string): ReadReq.Options.StreamOptions {
  const target = new ReadReq.Options.StreamOptions();
  const identifier = new StreamIdentifier();
  identifier.setStreamName(Buffer.from(stream).toString('base64'));
  target.setStreamIdentifier(identifier);
  return target;
}

function baseOptions(): ReadReq.Options {
  const options = new ReadReq.Options();
  const uuid = new ReadReq.Options.UUIDOption();
  uuid.setString(new Empty());
  options.setUuidOption(uuid);
  options.setResolveLinks(false);
  return options;
}

function request(options: ReadReq.Options): ReadReq {
  const message = new ReadReq();
  message.setOptions(options);
  return message;
}
