import * as shared from '@eventstore/db-client/generated/shared_pb';
import { Status } from '@eventstore/db-client/generated/status_pb';
import {
  AppendTooLarge,
  StoreRefused,
  StoreUnavailable,
  StreamDeleted,
  WrongRevision,
} from './errors';
import { FRAME_HEADER_BYTES } from './frames';
import type { Appended, ExpectedRevision, NewEvent } from './port';
import { fieldSize, Reader, varintFieldSize, Writer } from './wire';

/** What an append sends, prepared once: a repeat sends the very same events. */
export interface AppendBody {
  readonly stream: string;
  readonly expected: ExpectedRevision;
  readonly streamName: Buffer;
  readonly events: readonly EncodedEvent[];
  /** Of data and metadata. */
  readonly payloadBytes: number;
}

interface EncodedEvent {
  readonly id: string;
  readonly type: Buffer;
  readonly contentType: Buffer;
  readonly metadata: Uint8Array;
  readonly data: Uint8Array;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const empty = Buffer.alloc(0);
const contentTypeKey = Buffer.from('content-type');
const json = Buffer.from('application/json');
const octets = Buffer.from('application/octet-stream');
const typeKey = Buffer.from('type');

export function appendBody(
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
): AppendBody {
  let payloadBytes = 0;
  const encoded = events.map((event) => {
    if (!uuid.test(event.id)) throw new StoreRefused('invalid', `${event.id} is not a UUID`);
    const binary = event.data instanceof Uint8Array || ArrayBuffer.isView(event.data);
    const data = binary ? (event.data as Uint8Array) : Buffer.from(JSON.stringify(event.data));
    const metadata = event.metadata ? Buffer.from(JSON.stringify(event.metadata)) : empty;
    payloadBytes += data.length + metadata.length;
    const contentType = binary ? octets : json;
    return { id: event.id, type: Buffer.from(event.type), contentType, metadata, data };
  });
  const streamName = Buffer.from(stream);
  return { stream, expected, streamName, events: encoded, payloadBytes };
}

const typeEntrySize = ({ type }: EncodedEvent): number =>
  fieldSize(typeKey.length) + fieldSize(type.length);
const contentTypeEntrySize = ({ contentType }: EncodedEvent): number =>
  fieldSize(contentTypeKey.length) + fieldSize(contentType.length);

const eventSize = (event: EncodedEvent): number =>
  fieldSize(fieldSize(event.id.length)) +
  fieldSize(typeEntrySize(event)) +
  fieldSize(contentTypeEntrySize(event)) +
  fieldSize(event.metadata.length) +
  fieldSize(event.data.length);

const writeEvent = (writer: Writer, event: EncodedEvent, size: number): Writer =>
  writer
    .open(3, size)
    .open(1, fieldSize(event.id.length))
    .ascii(2, event.id)
    .open(2, typeEntrySize(event))
    .bytes(1, typeKey)
    .bytes(2, event.type)
    .open(2, contentTypeEntrySize(event))
    .bytes(1, contentTypeKey)
    .bytes(2, event.contentType)
    .bytes(3, event.metadata)
    .bytes(4, event.data);

const correlationPrefix = '00000000-0000-4000-8000-';

/**
 * A BatchAppendReq in its frame. The correlation is handed back by the server. How long the append may
 * wait is said as a duration: the server's clock may be another.
 */
export function appendFrame(body: AppendBody, correlation: number, withinMs: number): Buffer {
  const correlationId = correlationPrefix + correlation.toString(16).padStart(12, '0');
  const seconds = Math.floor(withinMs / 1000);
  const nanos = Math.floor(withinMs % 1000) * 1_000_000;
  const { expected, streamName } = body;
  const idSize = fieldSize(correlationId.length);
  const nameSize = fieldSize(streamName.length);
  const deadlineSize = varintFieldSize(seconds) + varintFieldSize(nanos);
  const expectedSize = typeof expected === 'number' ? varintFieldSize(expected) : fieldSize(0);
  const optionsSize = fieldSize(nameSize) + expectedSize + fieldSize(deadlineSize);
  let size = fieldSize(idSize) + fieldSize(optionsSize) + varintFieldSize(1);
  const sizes = body.events.map(eventSize);
  for (const eventBytes of sizes) size += fieldSize(eventBytes);
  const writer = new Writer(FRAME_HEADER_BYTES + size)
    .frameHeader(size)
    .open(1, idSize)
    .ascii(2, correlationId)
    .open(2, optionsSize)
    .open(1, nameSize)
    .bytes(3, streamName);
  if (typeof expected === 'number') writer.varint(2, expected);
  else writer.open(expected === 'none' ? 3 : 4, 0);
  writer.open(7, deadlineSize).varint(1, seconds).varint(2, nanos);
  for (const [n, event] of body.events.entries()) writeEvent(writer, event, sizes[n] ?? 0);
  return writer.varint(4, 1).finish();
}

export type AppendResponse =
  | { readonly correlation: number; readonly appended: Appended }
  | { readonly correlation: number; readonly error: Buffer };

export function appendResponse(message: Buffer): AppendResponse {
  const reader = new Reader(message);
  let correlation = -1;
  let error: Buffer | undefined;
  let appended: Appended = { revision: -1, position: 0n };
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) correlation = correlationIn(reader.message());
    else if (field === 2) error = reader.bytes();
    else if (field === 3) appended = success(reader.message());
    else reader.skip();
  }
  return error ? { correlation, error } : { correlation, appended };
}

/** As text, or as two halves of 64 bits. */
function correlationIn(reader: Reader): number {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 2) return Number.parseInt(reader.ascii().slice(-12), 16);
    if (field !== 1) {
      reader.skip();
      continue;
    }
    const halves = reader.message();
    for (let half = halves.next(); half !== 0; half = halves.next()) {
      if (half === 2) return Number(halves.bigint() & 0xffff_ffff_ffffn);
      halves.skip();
    }
  }
  return -1;
}

function success(reader: Reader): Appended {
  let revision = -1;
  let position = 0n;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) revision = reader.number();
    else if (field === 3) {
      const inner = reader.message();
      for (let part = inner.next(); part !== 0; part = inner.next()) {
        if (part === 1) position = inner.bigint();
        else inner.skip();
      }
    } else reader.skip();
  }
  return { revision, position };
}

const RESOURCE_EXHAUSTED = 8;
const INVALID_ARGUMENT = 3;

/** Our error for the `google.rpc.Status` of a refused append. */
export function appendError(encoded: Buffer, { stream, expected }: AppendBody): Error {
  const status = Status.deserializeBinary(encoded);
  const code: number = status.getCode();
  const details = status.getDetails();
  const type = details?.getTypeName().split('.').at(-1);
  const value = details?.getValue_asU8() ?? empty;
  switch (type) {
    case 'WrongExpectedVersion': {
      const wrong = shared.WrongExpectedVersion.deserializeBinary(value);
      const actual = wrong.hasCurrentStreamRevision()
        ? Number(wrong.getCurrentStreamRevision())
        : 'none';
      return new WrongRevision(stream, expected, actual);
    }
    case 'StreamDeleted':
      return new StreamDeleted(stream);
    case 'MaximumAppendSizeExceeded':
      return new AppendTooLarge(
        shared.MaximumAppendSizeExceeded.deserializeBinary(value).getMaxappendsize(),
      );
    case 'AccessDenied':
      return new StoreRefused('access_denied', 'this user may not append');
  }
  if (code === RESOURCE_EXHAUSTED) return new StoreRefused('no_space', status.getMessage());
  if (code === INVALID_ARGUMENT) return new StoreRefused('invalid', status.getMessage());
  return new StoreUnavailable(status.getMessage() || `status ${code}`);
}
