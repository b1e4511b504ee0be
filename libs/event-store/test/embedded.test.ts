import { eventStoreContract } from '@vmux/event-store/contract';
import { releaseAll, startEventStore } from '@vmux/testing';

afterAll(releaseAll);

const open = async () => Object.assign(await startEventStore(), { maxAppendBytes: 1024 * 1024 });

eventStoreContract('the embedded server', open, { mayBeKilled: true, hasPassword: true });
