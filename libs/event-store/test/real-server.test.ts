import { eventStoreContract } from '@vmux/event-store/contract';
import { skipUnless } from '@vmux/testing';

const url = process.env.EVENTSTORE_URL;

if (url) {
  eventStoreContract('a real server', async () => ({ url, stop: async () => undefined }), {
    mayBeKilled: false,
    hasPassword: /\/\/[^@/]+@/.test(url),
  });
} else {
  skipUnless(false, 'EVENTSTORE_URL names no EventStoreDB or KurrentDB server')(
    'the event store port on a real server',
    async () => undefined,
  );
}
