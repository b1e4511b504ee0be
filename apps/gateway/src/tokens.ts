/** What modules inject by. */
export const CONFIG = Symbol('Config');
export const LOGGER = Symbol('Logger');
export const EVENT_STORE = Symbol('EventStore');
export const BUS = Symbol('Bus');
export const ARTIFACTS = Symbol('ArtifactStore');
export const UPLOADS = Symbol('Uploads');
export const KEY_STORE = Symbol('KeyStore');
export const SESSION_INDEX = Symbol('SessionIndex');
export const METRICS = Symbol('Metrics');
