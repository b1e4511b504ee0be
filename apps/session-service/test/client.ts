import { createHash, randomUUID } from 'node:crypto';
import type { EventStore } from '@vmux/event-store';
import {
  accepted,
  type ClientCommand,
  type CommandAccepted,
  type CommandNamed,
  type CommandReply,
  commandSubject,
  deriveExecId,
  type ExecSpec,
  logStream,
  type SessionSpec,
  type Stream,
  scopedKey,
  sessionIdOf,
  sessionStream,
} from '@vmux/events';
import { type Bus, decodeJson, encodeJson } from '@vmux/messaging';
import { EXEC } from './domain-makers';

export const OWNER = 'alice';

export const specOf = (change: Partial<SessionSpec> = {}): SessionSpec => ({
  image: null,
  resources: { cpus: 1, memoryMiB: 256, diskMiB: 1024, pids: 256, gpu: null },
  env: null,
  cwd: null,
  user: null,
  bundle: null,
  setup: 'none',
  ports: [],
  egress: false,
  allowHosts: [],
  labels: {},
  policy: {
    idleTimeoutMs: null,
    keepMs: null,
    maxRuntimeMs: null,
    rehydrate: 'on_demand',
    lostAfterMs: null,
    checkpointEveryMs: null,
    stopGraceMs: 1000,
  },
  log: { budgetBytes: 1024 ** 3, whenFull: 'truncate' },
  ...change,
});

export const execSpecOf = (line: string, change: Partial<ExecSpec> = {}): ExecSpec => ({
  ...EXEC,
  command: { kind: 'shell', line },
  ...change,
});

type Data<T extends ClientCommand['type']> = CommandNamed<T>['data'];

/** Sends commands as the gateway does. */
export class Client {
  constructor(
    private readonly bus: Bus,
    readonly owner = OWNER,
  ) {}

  create(name: string, spec = specOf(), clientKey: string = randomUUID(), provider = 'ns') {
    const key = scopedKey(this.owner, 'POST /v1/sessions', clientKey);
    const sessionId = sessionIdOf(name, this.owner, key, 0);
    return this.send('CreateSession', sessionId, key, {
      name,
      attempt: 0,
      provider,
      spec,
      lineage: null,
    });
  }

  async exec(sessionId: string, line: string, clientKey: string = randomUUID(), change = {}) {
    const key = scopedKey(this.owner, `POST /v1/sessions/${sessionId}/execs`, clientKey);
    const execId = deriveExecId(sessionId, key);
    const spec = execSpecOf(line, change);
    const reply = await this.send('IssueExec', sessionId, key, { execId, spec });
    return { ...reply, execId };
  }

  ask<T extends ClientCommand['type']>(type: T, sessionId: string, data: Data<T>) {
    return this.send(type, sessionId, scopedKey(this.owner, type, randomUUID()), data);
  }

  async send<T extends ClientCommand['type']>(
    type: T,
    sessionId: string,
    key: string,
    data: Data<T>,
    timeoutMs = 10_000,
  ): Promise<CommandAccepted> {
    const command = {
      type,
      sessionId,
      key,
      digest: createHash('sha256').update(JSON.stringify(data)).digest('hex'),
      owner: this.owner,
      principal: `key:${this.owner}`,
      correlationId: randomUUID(),
      traceparent: null,
      at: Date.now(),
      placement: null,
      data,
    };
    const reply = await this.bus.request(commandSubject(type), encodeJson(command), { timeoutMs });
    return accepted(decodeJson(reply) as CommandReply);
  }
}

export async function historyOf(store: EventStore, sessionId: string): Promise<string[]> {
  const types: string[] = [];
  for await (const event of store.read(sessionStream(sessionId))) types.push(event.type);
  return types;
}

export async function factsOf(store: EventStore, sessionId: string, type: string) {
  const found: Record<string, unknown>[] = [];
  for await (const event of store.read(sessionStream(sessionId)))
    if (event.type === type) found.push(event.data as Record<string, unknown>);
  return found;
}

/** What a reader of the log gets, checked to be without a hole. */
export async function outputOf(
  store: EventStore,
  sessionId: string,
  execId: string,
  stream: Stream,
): Promise<Buffer> {
  const parts: Buffer[] = [];
  let next = 0;
  for await (const { type, data, metadata } of store.read(logStream(sessionId))) {
    if (type !== 'LogChunk' || metadata.execId !== execId || metadata.stream !== stream) continue;
    if (metadata.offset !== next || !Buffer.isBuffer(data))
      throw new Error(`expected ${next}, found ${JSON.stringify(metadata)}`);
    parts.push(data);
    next += data.length;
  }
  return Buffer.concat(parts);
}
