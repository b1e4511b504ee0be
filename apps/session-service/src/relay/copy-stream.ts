import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  headers,
  type JetStreamClient,
  type JetStreamManager,
  type NatsConnection,
  NatsError,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from 'nats';
import { COPY_HEADER, type Copy, type CopyMessage, OMITTED_HEADER, POSITION_HEADER } from './copy';

/** Where the copy ends: what to expect there and where in the store to go on. */
export interface Tail {
  readonly sequence: number;
  /** Of the last event in the copy; null: it has none. */
  readonly position: bigint | null;
}

/** Another relay has published at this place. */
export class Overtaken extends Error {
  override readonly name = 'Overtaken';
}

export interface CopyStreamSettings {
  /** The oldest messages are dropped above it; null: never. */
  readonly maxBytes: number | null;
  readonly replicas: number;
  readonly timeoutMs: number;
}

const STREAM_NOT_FOUND = 10059;
const NO_MESSAGE_FOUND = 10037;
const WRONG_LAST_MESSAGE = 10070;
const WRONG_LAST_SEQUENCE = 10071;
/** No message is sent twice under one id: nothing is gained by remembering them for longer. */
const REMEMBER_IDS_NS = 1_000_000_000;
/** Room for headers and the protocol in the server's `max_payload`. */
const HEADER_ROOM = 2048;
/** How far to look back for a message of a relay, past those of strangers. */
const MAX_STRANGERS = 256;

/** A copy's stream in JetStream. */
export class CopyStream {
  private name = '';
  private readonly chain = randomUUID();
  private isBegun = false;

  private constructor(
    private readonly connection: NatsConnection,
    private readonly manager: JetStreamManager,
    private readonly client: JetStreamClient,
    private readonly copy: Copy,
    private readonly settings: CopyStreamSettings,
  ) {}

  /** Makes the stream where there is none. */
  static async open(
    connection: NatsConnection,
    copy: Copy,
    settings: CopyStreamSettings,
  ): Promise<CopyStream> {
    const options = { timeout: settings.timeoutMs };
    const manager = await connection.jetstreamManager({ ...options, checkAPI: false });
    const stream = new CopyStream(
      connection,
      manager,
      connection.jetstream(options),
      copy,
      settings,
    );
    await stream.ensure();
    return stream;
  }

  async tail(): Promise<Tail> {
    const { state } = await this.manager.streams.info(this.copy.stream);
    const last = await this.message({ last_by_subj: this.copy.subjects });
    if (!last) return { sequence: state.last_seq, position: null };
    // Between the two calls another relay may have gone on; in the other case the newest were removed.
    const sequence = Math.max(state.last_seq, last.seq);
    const lowest = Math.max(1, state.first_seq, last.seq - MAX_STRANGERS);
    for (let seq = last.seq; seq >= lowest; seq--) {
      const message = seq === last.seq ? last : await this.message({ seq });
      const position = positionIn(message?.header?.get(POSITION_HEADER));
      if (position !== null) return { sequence, position };
    }
    if (lowest <= state.first_seq) return { sequence, position: null };
    throw new Error(
      `the last ${MAX_STRANGERS} messages of ${this.copy.stream} are not a relay's: remove them`,
    );
  }

  /**
   * Stores the message right after the given sequence, and after the one that was published before it, or not
   * at all; returns its own. The sequence alone would not do: a stranger's message can take the place of one.
   */
  async publish(message: CopyMessage, after: number): Promise<number> {
    const lastMsgID = this.isBegun ? `${this.chain}.${after}` : undefined;
    this.isBegun = true;
    const carried = headers();
    for (const [name, value] of Object.entries(message.headers)) carried.set(name, value);
    carried.set(COPY_HEADER, this.name);
    const fits = message.data.length + HEADER_ROOM <= this.maxPayload;
    if (!fits) carried.set(OMITTED_HEADER, String(message.data.length));
    try {
      const stored = await this.client.publish(
        message.subject,
        fits ? message.data : message.stub,
        {
          headers: carried,
          msgID: `${this.chain}.${after + 1}`,
          expect: { lastSequence: after, streamName: this.copy.stream, lastMsgID },
        },
      );
      if (stored.duplicate || stored.seq !== after + 1)
        throw new Overtaken(`stored at ${stored.seq} and not at ${after + 1}`);
      return stored.seq;
    } catch (error) {
      const code = errorCodeOf(error);
      if (code !== WRONG_LAST_SEQUENCE && code !== WRONG_LAST_MESSAGE) throw error;
      throw new Overtaken(`the stream does not end at ${after}`, { cause: error });
    }
  }

  /** Removes what stands before the sequence, which stays: the copy's last message is never removed. */
  async forget(sessionId: string, before: number): Promise<void> {
    await this.manager.streams.purge(this.copy.stream, {
      filter: this.copy.subjectsOf(sessionId),
      seq: before,
    });
  }

  /**
   * Forgets again what a crash kept from being forgotten, or brought back: nats-server may lose removals
   * that it has acknowledged.
   */
  async forgetDeleted(): Promise<void> {
    const deleted = await this.subjectsLike(this.copy.deletedSubject('*'));
    if (deleted.size === 0) return;
    const all = await this.subjectsLike(this.copy.subjects);
    const held = new Set([...all].filter((subject) => !deleted.has(subject)).map(sessionIn));
    for (const marker of deleted) {
      const sessionId = sessionIn(marker);
      if (!held.has(sessionId)) continue;
      const message = await this.message({ last_by_subj: marker });
      if (message) await this.forget(sessionId, message.seq);
    }
  }

  private get maxPayload(): number {
    return this.connection.info?.max_payload ?? 1024 * 1024;
  }

  private async ensure(): Promise<void> {
    const wanted = {
      subjects: [this.copy.subjects],
      max_bytes: this.settings.maxBytes ?? -1,
      num_replicas: this.settings.replicas,
      duplicate_window: REMEMBER_IDS_NS,
    } satisfies Partial<StreamConfig>;
    const { streams } = this.manager;
    const found = await orNull(streams.info(this.copy.stream), STREAM_NOT_FOUND);
    const info =
      found ??
      (await streams.add({
        ...wanted,
        name: this.copy.stream,
        retention: RetentionPolicy.Limits,
        storage: StorageType.File,
      }));
    this.name = info.created;
    const same =
      info.config.max_bytes === wanted.max_bytes &&
      info.config.num_replicas === wanted.num_replicas &&
      info.config.duplicate_window === wanted.duplicate_window &&
      info.config.subjects.join() === wanted.subjects.join();
    if (!same) await streams.update(this.copy.stream, { ...info.config, ...wanted });
  }

  private message(query: { seq: number } | { last_by_subj: string }) {
    return orNull(this.manager.streams.getMessage(this.copy.stream, query), NO_MESSAGE_FOUND);
  }

  private async subjectsLike(filter: string): Promise<Set<string>> {
    const { state } = await this.manager.streams.info(this.copy.stream, {
      subjects_filter: filter,
    });
    return new Set(Object.keys(state.subjects ?? {}));
  }
}

const DROP_AGAIN_MS = 5_000;

/** Removes a copy that is not wanted any more: nobody would forget in it what is deleted. */
export async function dropCopy(
  connection: NatsConnection,
  { stream }: Copy,
  signal: AbortSignal,
  log: { warn(facts: object, message: string): void },
): Promise<void> {
  while (!signal.aborted) {
    try {
      const manager = await connection.jetstreamManager({ checkAPI: false });
      const dropped = await orNull(manager.streams.delete(stream), STREAM_NOT_FOUND);
      if (dropped) log.warn({ stream }, 'a copy that is switched off was removed');
      return;
    } catch (fault) {
      if (signal.aborted) return;
      log.warn({ stream, fault }, 'a copy that is switched off could not be removed');
      await sleep(DROP_AGAIN_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}

const sessionIn = (subject: string): string => subject.split('.')[2] ?? '';

const positionIn = (text: string | undefined): bigint | null =>
  text !== undefined && /^\d{1,20}$/.test(text) ? BigInt(text) : null;

const errorCodeOf = (error: unknown): number | undefined =>
  error instanceof NatsError ? error.api_error?.err_code : undefined;

const orNull = <T>(answer: Promise<T>, code: number): Promise<T | null> =>
  answer.catch((error: unknown) => {
    if (errorCodeOf(error) === code) return null;
    throw error;
  });
