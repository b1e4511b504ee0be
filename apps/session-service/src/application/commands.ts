import {
  type CausedEvent,
  type ClientCommand,
  type CommandAccepted,
  type CommandNamed,
  encode,
  Failure,
  Refusal,
  sessionIdOf,
} from '@vmux/events';
import type { KeyStore } from '@vmux/key-store';
import { type Changes, causeOf } from './changes';
import type { SessionHistory } from './session-history';

const MAX_ATTEMPTS = 16;
/** An answer has to fit into a message; what does not fit is read from the store. */
const MAX_ANSWERED_CHARS = 64 * 1024;

/** Takes a client's command to its answer. The same key finds the same answer. */
export class CommandHandler {
  constructor(
    private readonly changes: Changes,
    private readonly history: SessionHistory,
    private readonly keys: KeyStore,
    private readonly hasRoom: () => boolean,
  ) {}

  handle(command: ClientCommand): Promise<CommandAccepted> {
    return command.type === 'CreateSession' ? this.create(command) : this.answer(command);
  }

  /** An id that another's session has is left to it; the next attempt has another id. */
  private async create(command: CommandNamed<'CreateSession'>): Promise<CommandAccepted> {
    const { owner, key, data } = command;
    if (!this.hasRoom())
      throw new Failure('no_space', 'the store is short of room: delete sessions', true, 5000);
    for (let attempt = data.attempt; ; attempt += 1) {
      const sessionId = sessionIdOf(data.name, owner, key, attempt);
      try {
        return await this.answer(await this.at(command, sessionId, attempt));
      } catch (fault) {
        const taken = fault instanceof Refusal && fault.code === 'name_taken';
        if (!taken || attempt >= data.attempt + MAX_ATTEMPTS) throw fault;
      }
    }
  }

  /** Values that were sealed for the first id are sealed again for the one that is free. */
  private async at(
    command: CommandNamed<'CreateSession'>,
    sessionId: string,
    attempt: number,
  ): Promise<CommandNamed<'CreateSession'>> {
    const { env } = command.data.spec;
    const sealed =
      env === null || sessionId === command.sessionId
        ? env
        : await this.keys.seal(sessionId, await this.keys.unseal(command.sessionId, env));
    const spec = { ...command.data.spec, env: sealed };
    return { ...command, sessionId, data: { ...command.data, attempt, spec } };
  }

  private async answer(command: ClientCommand): Promise<CommandAccepted> {
    const { sessionId } = command;
    const { before, after, events, repeatedFrom } = await this.changes.command(command);
    if (repeatedFrom !== null) {
      const found = await this.history.eventsUnder(sessionId, repeatedFrom, command.key);
      const last = found.at(-1);
      return {
        ok: true,
        sessionId,
        firstRevision: repeatedFrom,
        revision: last?.revision ?? repeatedFrom,
        position: String(last?.position ?? after.position),
        repeated: true,
        ...shown(found.map(({ type, data, metadata }) => ({ type, data, metadata }))),
      };
    }
    const { revision } = after.session;
    const firstRevision = events.length > 0 ? before.session.revision + 1 : revision;
    return {
      ok: true,
      sessionId,
      firstRevision,
      revision,
      position: String(after.position),
      repeated: false,
      ...shown(events.map((event) => encode(event, causeOf(command)))),
    };
  }
}

/** What the command caused, to save whoever asked from reading it. */
const shown = (events: readonly CausedEvent[]): Pick<CommandAccepted, 'events'> =>
  events.length > 0 && JSON.stringify(events).length <= MAX_ANSWERED_CHARS ? { events } : {};
