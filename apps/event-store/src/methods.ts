import {
  SupportedMethod,
  SupportedMethods,
} from '@eventstore/db-client/generated/serverfeatures_pb';
import { frameOf } from './protocol/recorded-event';
import { Status } from './protocol/status';
import type { EventStore } from './storage/event-store';
import { append, batchAppend } from './streams/append';
import { deleteStream } from './streams/delete';
import { read } from './streams/read';
import type { Subscriptions } from './streams/subscriptions';
import type { Call } from './transport/call';
import type { Method } from './transport/server';

const STREAMS = 'event_store.client.streams.Streams';
const FEATURES = 'event_store.client.server_features.ServerFeatures';
/** The oldest server version whose clients use the calls below as they are answered here. */
const SERVER_VERSION = '23.10.0';

/** Every method there is; what is not listed is UNIMPLEMENTED, and clients are told so in advance. */
export function methodsOf(store: EventStore, subscriptions: Subscriptions): Map<string, Method> {
  const { committer, reader } = store;
  const methods = new Map<string, Method>([
    [`/${STREAMS}/Append`, { start: (call) => append(call, committer) }],
    [`/${STREAMS}/BatchAppend`, { start: (call) => batchAppend(call, committer) }],
    [`/${STREAMS}/Read`, { start: (call) => read(call, reader, subscriptions) }],
    [`/${STREAMS}/Delete`, { start: (call) => deleteStream(call, committer, 'delete') }],
    [`/${STREAMS}/Tombstone`, { start: (call) => deleteStream(call, committer, 'tombstone') }],
  ]);
  const features = `/${FEATURES}/GetSupportedMethods`;
  const answer = supportedMethods([...methods.keys(), features]);
  methods.set(features, { anonymous: true, start: (call) => answerOnce(call, answer) });
  return methods;
}

function supportedMethods(paths: readonly string[]): Buffer {
  const response = new SupportedMethods();
  response.setEventStoreServerVersion(SERVER_VERSION);
  response.setMethodsList(
    paths.map((path) => {
      const [, service = '', name = ''] = path.toLowerCase().split('/');
      const method = new SupportedMethod();
      method.setServiceName(service);
      method.setMethodName(name);
      return method;
    }),
  );
  return frameOf(response.serializeBinary());
}

function answerOnce(call: Call, answer: Buffer): void {
  call.serve({
    message: () => undefined,
    end: () => {
      call.send(answer);
      call.finish(Status.OK);
    },
  });
}
