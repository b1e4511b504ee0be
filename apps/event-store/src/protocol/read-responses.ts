import { StreamIdentifier } from '@eventstore/db-client/generated/shared_pb';
import { ReadResp } from '@eventstore/db-client/generated/streams_pb';
import { frameOf } from './recorded-event';

const framed = (fill: (response: ReadResp) => void): Buffer => {
  const response = new ReadResp();
  fill(response);
  return frameOf(response.serializeBinary());
};

export const confirmation = (subscriptionId: string): Buffer =>
  framed((response) => {
    const message = new ReadResp.SubscriptionConfirmation();
    message.setSubscriptionId(subscriptionId);
    response.setConfirmation(message);
  });

export const checkpoint = (position: number): Buffer =>
  framed((response) => {
    const message = new ReadResp.Checkpoint();
    message.setCommitPosition(String(position));
    message.setPreparePosition(String(position));
    response.setCheckpoint(message);
  });

export const caughtUp = (): Buffer =>
  framed((response) => response.setCaughtUp(new ReadResp.CaughtUp()));

export const streamNotFound = (stream: string): Buffer =>
  framed((response) => {
    const message = new ReadResp.StreamNotFound();
    const identifier = new StreamIdentifier();
    identifier.setStreamName(Buffer.from(stream, 'utf8'));
    message.setStreamIdentifier(identifier);
    response.setStreamNotFound(message);
  });
