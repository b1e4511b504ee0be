import { StoreUnavailable, StreamDeleted, StreamNotFound } from '@vmux/event-store';
import {
  accepted,
  type CausedEvent,
  type ClientCommand,
  type ClientCommandType,
  type CommandAccepted,
  type CommandNamed,
  type CommandReply,
  commandSubject,
  decode,
  parseCommand,
  type Recorded,
  scopedKey,
  sessionStream,
} from '@vmux/events';
import type { KeyStore } from '@vmux/key-store';
import { type Bus, decodeJson, encodeJson, MalformedMessage } from '@vmux/messaging';
import { canonicalDigest, canonicalJson } from './canonical-json';
import type { Caller } from './key-ring';
import type { GuardedStore } from './store-guard';

/** A request that asks for a change: who, under which key, and where it came from. */
export interface Asking {
  readonly caller: Caller;
  /** Method and path. */
  readonly operation: string;
  /** The Idempotency-Key. */
  readonly clientKey: string;
  readonly requestId: string;
  readonly traceparent: string | null;
}

export interface Answer {
  readonly accepted: CommandAccepted;
  /** The events that the command caused, the first time or now: answers are built from them alone. */
  readonly events: readonly { readonly recorded: Recorded; readonly position: bigint }[];
}

/** It was carried out, and what it caused cannot be read at the moment. */
export class AnswerLost extends Error {
  readonly code = 'answer_lost';
  constructor(type: string, options?: ErrorOptions) {
    super(`${type} was accepted and its answer cannot be read`, options);
    this.name = 'AnswerLost';
  }
}

export const keyOf = ({ caller, operation, clientKey }: Asking): string =>
  scopedKey(caller.owner, operation, clientKey);

const MAX_EVENTS_OF_A_COMMAND = 256;

/** Sends commands to whichever session service takes them, and reads back what they caused. */
export class Commander {
  constructor(
    private readonly bus: Bus,
    private readonly store: GuardedStore,
    private readonly keys: KeyStore,
    private readonly timeoutMs: number,
  ) {}

  async send<T extends ClientCommandType>(
    asking: Asking,
    sessionId: string,
    type: T,
    data: CommandNamed<T>['data'],
    digest: string,
  ): Promise<Answer> {
    const { caller, requestId, traceparent } = asking;
    const command = parseCommand({
      ...{ type, sessionId, data, digest, traceparent },
      key: keyOf(asking),
      owner: caller.owner,
      principal: `key:${caller.keyId}`,
      correlationId: requestId,
      at: Date.now(),
      placement: null,
    });
    const reply = await this.request(command);
    try {
      return { accepted: reply, events: await this.caused(reply) };
    } catch (cause) {
      // A deletion may already have dropped what it caused.
      if (cause instanceof StreamNotFound || cause instanceof StreamDeleted)
        return { accepted: reply, events: [] };
      if (cause instanceof StoreUnavailable) throw new AnswerLost(type, { cause });
      throw cause;
    }
  }

  /** Of a request without secrets. */
  digestOf(body: unknown): string {
    return canonicalDigest(body);
  }

  /** Of a request with secrets: keyed, so that what stands in events cannot be guessed from. */
  keyedDigestOf(sessionId: string, body: unknown): Promise<string> {
    return this.keys.digest(sessionId, Buffer.from(canonicalJson(body)));
  }

  private async request(command: ClientCommand): Promise<CommandAccepted> {
    // Known to be lost before it is sent, a command is refused; afterwards its outcome would be unknown.
    this.store.expectUp();
    const { correlationId: requestId, traceparent } = command;
    const trace = traceparent ? { requestId, traceparent } : { requestId };
    const reply = await this.bus.request(commandSubject(command.type), encodeJson(command), {
      timeoutMs: this.timeoutMs,
      trace,
    });
    return accepted(replyFrom(decodeJson(reply)));
  }

  /** Events of one append may stand before its position and never after it. */
  private told(
    { firstRevision, position }: CommandAccepted,
    events: readonly CausedEvent[],
  ): Answer['events'] {
    return events.flatMap((event, index) => {
      const recorded = decode({ ...event, revision: firstRevision + index });
      return recorded ? [{ recorded, position: BigInt(position) }] : [];
    });
  }

  private async caused(reply: CommandAccepted): Promise<Answer['events']> {
    const { sessionId, firstRevision, revision } = reply;
    if (reply.events) return this.told(reply, reply.events);
    const limit = Math.min(revision - firstRevision + 1, MAX_EVENTS_OF_A_COMMAND);
    if (limit < 1) return [];
    const events: { recorded: Recorded; position: bigint }[] = [];
    const options = { from: firstRevision, limit };
    for await (const stored of this.store.read(sessionStream(sessionId), options)) {
      const recorded = decode(stored);
      if (recorded) events.push({ recorded, position: stored.position });
    }
    return events;
  }
}

function replyFrom(value: unknown): CommandReply {
  if (typeof value === 'object' && value !== null && 'ok' in value) return value as CommandReply;
  throw new MalformedMessage('not the answer to a command');
}
