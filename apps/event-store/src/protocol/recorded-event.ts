import { UUID } from '@eventstore/db-client/generated/shared_pb';
import { ReadResp } from '@eventstore/db-client/generated/streams_pb';
import type { ProposedEvent } from './proposed-event';
import { bytesFieldSize, varintSize, Writer } from './wire';

/** What the store adds to a proposed event. */
export interface Recording {
  readonly stream: Buffer;
  readonly revision: number | bigint;
  readonly position: number;
  readonly createdMs: number;
}

export const FRAME_HEADER_BYTES = 5;
const TICKS_PER_MS = 10_000n;

/**
 * The whole gRPC frame of `ReadResp { event: ReadEvent { event: RecordedEvent, commit_position } }`.
 * Events are stored in this form, so that a read sends stored bytes as they are.
 */
export function encodeEventFrame(event: ProposedEvent, recording: Recording): Buffer {
  const { stream, position } = recording;
  const revision = revisionBytes(recording.revision);
  const type = Buffer.from(event.type, 'utf8');
  const contentType = Buffer.from(event.contentType, 'utf8');
  const created = Buffer.from((BigInt(recording.createdMs) * TICKS_PER_MS).toString(), 'latin1');
  const typeEntry = mapEntrySize(TYPE, type);
  const contentTypeEntry = mapEntrySize(CONTENT_TYPE, contentType);
  const createdEntry = mapEntrySize(CREATED, created);
  const idSize = bytesFieldSize(event.id.length);
  const streamSize = bytesFieldSize(stream.length);
  const positionSize = 1 + varintSize(position);
  const recordedSize =
    bytesFieldSize(idSize) +
    bytesFieldSize(streamSize) +
    1 +
    revision.length +
    2 * positionSize +
    bytesFieldSize(typeEntry) +
    bytesFieldSize(contentTypeEntry) +
    bytesFieldSize(createdEntry) +
    bytesFieldSize(event.customMetadata.length) +
    bytesFieldSize(event.data.length);
  const readEventSize = bytesFieldSize(recordedSize) + positionSize;
  const messageSize = bytesFieldSize(readEventSize);

  const writer = new Writer(Buffer.allocUnsafe(FRAME_HEADER_BYTES + messageSize))
    .byte(0)
    .uint32BigEndian(messageSize)
    .open(1, readEventSize)
    .open(1, recordedSize)
    .open(1, idSize)
    .latinField(2, event.id)
    .open(2, streamSize)
    .bytesField(3, stream)
    .byte(3 << 3)
    .raw(revision)
    .varintField(4, position)
    .varintField(5, position);
  writeMapEntry(writer, typeEntry, TYPE, type);
  writeMapEntry(writer, contentTypeEntry, CONTENT_TYPE, contentType);
  writeMapEntry(writer, createdEntry, CREATED, created);
  return writer
    .bytesField(7, event.customMetadata)
    .bytesField(8, event.data)
    .varintField(3, position)
    .finish();
}

const TYPE = Buffer.from('type');
const CONTENT_TYPE = Buffer.from('content-type');
const CREATED = Buffer.from('created');

const mapEntrySize = (key: Buffer, value: Buffer): number =>
  bytesFieldSize(key.length) + bytesFieldSize(value.length);

const writeMapEntry = (writer: Writer, size: number, key: Buffer, value: Buffer): Writer =>
  writer.open(6, size).bytesField(1, key).bytesField(2, value);

function revisionBytes(revision: number | bigint): Buffer {
  if (typeof revision === 'number') {
    return new Writer(Buffer.allocUnsafe(varintSize(revision))).varint(revision).finish();
  }
  const bytes: number[] = [];
  let rest = revision;
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

/** The data of a stored event. */
export function decodeEventData(frame: Uint8Array): Buffer {
  const recorded = ReadResp.deserializeBinary(frame.subarray(FRAME_HEADER_BYTES))
    .getEvent()
    ?.getEvent();
  return Buffer.from(recorded?.getData_asU8() ?? []);
}

/** The frame for a client that wants ids as two integers instead of text. */
export function withStructuredId(frame: Uint8Array): Buffer {
  const response = ReadResp.deserializeBinary(frame.subarray(FRAME_HEADER_BYTES));
  const recorded = response.getEvent()?.getEvent();
  const text = recorded?.getId()?.getString() ?? '';
  const bytes = Buffer.from(text.replaceAll('-', ''), 'hex');
  const structured = new UUID.Structured();
  structured.setMostSignificantBits(bytes.readBigInt64BE(0).toString());
  structured.setLeastSignificantBits(bytes.readBigInt64BE(8).toString());
  const id = new UUID();
  id.setStructured(structured);
  recorded?.setId(id);
  return frameOf(response.serializeBinary());
}

/** A message as gRPC puts it on the wire: uncompressed, its length first. */
export function frameOf(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, FRAME_HEADER_BYTES);
  return frame;
}
