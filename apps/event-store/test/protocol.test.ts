import { ServerFeaturesService } from '@eventstore/db-client/generated/serverfeatures_grpc_pb';
import { StreamIdentifier, UUID } from '@eventstore/db-client/generated/shared_pb';
import { StreamsService } from '@eventstore/db-client/generated/streams_grpc_pb';
import {
  BatchAppendReq,
  BatchAppendResp,
  ReadResp,
} from '@eventstore/db-client/generated/streams_pb';
import fc from 'fast-check';
import { methodsOf } from '../src/methods';
import { decodeBatchAppendReq } from '../src/protocol/append-messages';
import { batchAppendResponse } from '../src/protocol/append-responses';
import { encodeEventFrame, withStructuredId } from '../src/protocol/recorded-event';
import { MalformedMessage } from '../src/protocol/wire';
import { FrameParser } from '../src/transport/frames';

const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array));
const name = fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' });
const revision = fc.nat({ max: Number.MAX_SAFE_INTEGER });
const position = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const PAYLOAD_AT = 5;

describe('what is written by hand', () => {
  it('encodes a stored event as the generated messages do', () => {
    fc.assert(
      fc.property(
        fc.uuid(),
        name,
        name,
        bytes,
        bytes,
        revision,
        position,
        (id, type, stream, data, customMetadata, at, place) => {
          const frame = encodeEventFrame(
            { id, type, contentType: 'application/json', data, customMetadata },
            {
              stream: Buffer.from(stream),
              revision: at,
              position: place,
              createdMs: 1_700_000_000_000,
            },
          );
          expect(frame.readUInt32BE(1)).toBe(frame.length - PAYLOAD_AT);
          const event = ReadResp.deserializeBinary(frame.subarray(PAYLOAD_AT)).getEvent();
          const recorded = event?.getEvent();
          expect(recorded?.getId()?.getString()).toBe(id);
          expect(
            Buffer.from(recorded?.getStreamIdentifier()?.getStreamName_asU8() ?? []).toString(),
          ).toBe(stream);
          expect(recorded?.getStreamRevision()).toBe(String(at));
          expect(recorded?.getCommitPosition()).toBe(String(place));
          expect(recorded?.getPreparePosition()).toBe(String(place));
          expect(event?.getCommitPosition()).toBe(String(place));
          expect(recorded?.getMetadataMap().get('type')).toBe(type);
          expect(recorded?.getMetadataMap().get('content-type')).toBe('application/json');
          expect(recorded?.getMetadataMap().get('created')).toBe('17000000000000000');
          expect(Buffer.from(recorded?.getData_asU8() ?? []).equals(data)).toBe(true);
          expect(Buffer.from(recorded?.getCustomMetadata_asU8() ?? []).equals(customMetadata)).toBe(
            true,
          );
        },
      ),
    );
  });

  it('decodes an append that the generated messages encode', () => {
    fc.assert(
      fc.property(
        fc.uuid(),
        fc.uuid(),
        name,
        name,
        bytes,
        bytes,
        revision,
        fc.boolean(),
        (correlation, id, type, stream, data, customMetadata, expected, isFinal) => {
          const uuid = (text: string) => new UUID().setString(text);
          const options = new BatchAppendReq.Options().setStreamIdentifier(
            new StreamIdentifier().setStreamName(Buffer.from(stream)),
          );
          options.setStreamPosition(String(expected));
          const event = new BatchAppendReq.ProposedMessage()
            .setId(uuid(id))
            .setData(data)
            .setCustomMetadata(customMetadata);
          event.getMetadataMap().set('type', type).set('content-type', 'application/json');
          const request = new BatchAppendReq()
            .setCorrelationId(uuid(correlation))
            .setOptions(options)
            .setIsFinal(isFinal);
          request.addProposedMessages(event);
          const decoded = decodeBatchAppendReq(Buffer.from(request.serializeBinary()));
          expect(decoded).toEqual({
            correlationId: correlation,
            isFinal,
            options: { stream, expected, deadlineMs: Number.POSITIVE_INFINITY },
            events: [{ id, type, contentType: 'application/json', data, customMetadata }],
          });
        },
      ),
    );
  });

  it('encodes the success of an append as the generated messages do', () => {
    fc.assert(
      fc.property(fc.uuid(), name, revision, position, (id, stream, at, place) => {
        const frame = batchAppendResponse(
          id,
          { stream, expected: 'any', deadlineMs: 0 },
          { kind: 'written', revision: at, position: place },
        );
        const response = BatchAppendResp.deserializeBinary(frame.subarray(PAYLOAD_AT));
        expect(response.getCorrelationId()?.getString()).toBe(id);
        expect(response.getSuccess()?.getCurrentRevision()).toBe(String(at));
        expect(response.getSuccess()?.getPosition()?.getCommitPosition()).toBe(String(place));
      }),
    );
  });

  it('gives ids as two integers to those who ask', () => {
    const id = 'f47ac10b-58cc-4372-a567-0e02b2c3d479';
    const event = {
      id,
      type: 't',
      contentType: 'c',
      data: Buffer.from('d'),
      customMetadata: Buffer.alloc(0),
    };
    const frame = encodeEventFrame(event, {
      stream: Buffer.from('s'),
      revision: 0,
      position: 1,
      createdMs: 0,
    });
    const uuid = ReadResp.deserializeBinary(withStructuredId(frame).subarray(PAYLOAD_AT))
      .getEvent()
      ?.getEvent()
      ?.getId();
    const half = (text = '0') => BigInt.asUintN(64, BigInt(text)).toString(16).padStart(16, '0');
    const structured = uuid?.getStructured();
    expect(
      half(structured?.getMostSignificantBits()) + half(structured?.getLeastSignificantBits()),
    ).toBe(id.replaceAll('-', ''));
  });

  it('throws nothing but its own error on any bytes', () => {
    fc.assert(
      fc.property(bytes, (message) => {
        try {
          decodeBatchAppendReq(message);
        } catch (error) {
          expect(error).toBeInstanceOf(MalformedMessage);
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe('frames', () => {
  it('come out as they went in, however they are cut', () => {
    fc.assert(
      fc.property(
        fc.array(bytes),
        fc.array(fc.nat({ max: 50 }), { minLength: 1 }),
        (messages, cuts) => {
          const whole = Buffer.concat(
            messages.map((message) => {
              const header = Buffer.alloc(5);
              header.writeUInt32BE(message.length, 1);
              return Buffer.concat([header, message]);
            }),
          );
          const parser = new FrameParser(1000);
          const out: Buffer[] = [];
          for (let at = 0, turn = 0; at < whole.length; turn++) {
            const size = (cuts[turn % cuts.length] ?? 0) + 1;
            out.push(...parser.push(whole.subarray(at, at + size)));
            at += size;
          }
          parser.end();
          expect(out.map((message) => message.toString('hex'))).toEqual(
            messages.map((message) => message.toString('hex')),
          );
        },
      ),
    );
  });
});

describe('methods', () => {
  it('have the paths of the generated services', () => {
    const unused = new Proxy({}, { get: () => undefined });
    const paths = [...methodsOf(unused as never, unused as never).keys()].sort();
    const generated = [StreamsService, ServerFeaturesService].flatMap((service) =>
      Object.values(service).map(({ path }: { path: string }) => path),
    );
    expect(paths).toEqual(generated.sort());
  });
});
