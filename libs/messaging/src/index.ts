export {
  type Bus,
  connectBus,
  type Handler,
  type Incoming,
  type OnFault,
  type ServeOptions,
  type Service,
} from './bus';
export { BusTimeout, BusUnavailable, MalformedMessage } from './errors';
export { decodeJson, encodeJson } from './json';
export { type Role, renderServerConfig, type ServerConfig, userOf } from './server-config';
export { type BusSettings, busSettingsFrom, inboxPrefixOf } from './settings';
export { timeLimit } from './time-limit';
export { type TraceContext, traceFrom } from './trace';
