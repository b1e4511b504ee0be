export { connectEventStore } from './connect';
export {
  AppendTooLarge,
  StoreRefused,
  StoreUnavailable,
  StreamDeleted,
  StreamNotFound,
  WrongRevision,
} from './errors';
export type {
  Appended,
  EventStore,
  ExpectedRevision,
  Json,
  JsonObject,
  NewEvent,
  ReadOptions,
  RecordedEvent,
  SubscriptionItem,
  SubscriptionSource,
} from './port';
export { type EventStoreSettings, eventStoreSettingsFrom } from './settings';
