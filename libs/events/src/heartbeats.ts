import { runnerId, sessionId } from './ids';
import {
  decimal,
  dictionary,
  flag,
  integer,
  list,
  nullable,
  oneOf,
  type Shaped,
  struct,
  text,
  withOptional,
} from './shape';
import { capability, epochNumber, poolName, provider, time } from './values';

export const MAX_MAKING = 256;

/** How far a sandbox has come that is not there yet. */
export const makingStage = oneOf('building', 'queued', 'starting');
export type MakingStage = Shaped<typeof makingStage>;

const making = struct({
  sessionId,
  epoch: epochNumber,
  stage: makingStage,
  since: time,
  detail: nullable(text(1000)),
});
export type Making = Shaped<typeof making>;

/** What a runner says about itself every few seconds. Never in a history: a hint for placement. */
export const heartbeat = withOptional(
  struct({
    runnerId,
    /** New at every start of the runner's process. */
    incarnation: text(64, 1),
    at: time,
    draining: flag,
    providers: list(
      withOptional(
        struct({
          provider,
          available: flag,
          /** Why it is not available, in one line. */
          reason: nullable(text(500)),
          capabilities: list(capability, 16),
          emulated: flag,
        }),
        {
          /** The kinds that it has, and how many of each one sandbox may have. */
          gpus: dictionary(text(64, 1), integer(1, 1024), 256),
          pool: poolName,
        },
      ),
      16,
    ),
    capacity: struct({
      sandboxes: integer(0),
      maxSandboxes: integer(0),
      freeMemoryMiB: integer(0),
      freeDiskMiB: integer(0),
      cpus: decimal(0, 65_536),
      load: decimal(0, 1_000_000),
    }),
    /** Where the gateway dials the data plane. */
    tunnel: nullable(struct({ url: text(512, 1), token: text(512, 1) })),
  }),
  /** The sandboxes that it is making: to be shown, never to be decided by. */
  { making: list(making, MAX_MAKING) },
);
export type Heartbeat = Shaped<typeof heartbeat>;

/** Takes a heartbeat off the wire; the name is the subject's. Throws `Malformed`. */
export const parseHeartbeat = (value: unknown, runnerId: string): Heartbeat => ({
  ...heartbeat(value, 'heartbeat'),
  runnerId,
});

/** What a session service says to the others every few seconds, so that they share the sending of orders. */
const presence = struct({ instance: text(128, 1), leaving: flag });
export type Presence = Shaped<typeof presence>;

/** Takes it off the wire; throws `Malformed`. */
export const parsePresence = (value: unknown): Presence => presence(value, 'presence');
