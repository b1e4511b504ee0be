export { releaseAll, releaseLater, temporaryDirectory, whenThisProcessDies } from './cleanup';
export {
  type DockerDaemon,
  type DockerEngine,
  debianArchive,
  noDockerEngineBecause,
  startDockerEngine,
} from './docker-engine';
export {
  type EventStoreOptions,
  type EventStoreServer,
  projectRoot,
  startEventStore,
} from './event-store';
export { type Nats, type NatsOptions, type NatsUser, startNats } from './nats';
export { freePort } from './ports';
export { type Exit, type ProcessOptions, type RunningProcess, startProcess } from './process';
export { type SeededRandom, seededRandom } from './random';
export { type Redis, type RedisOptions, startRedis } from './redis';
export type { Server } from './server';
export { describeUnless, skipUnless } from './skip-unless';
export { type UntilOptions, until } from './until';
