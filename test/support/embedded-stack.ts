import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type DockerEngine,
  projectRoot,
  type RunningProcess,
  startProcess,
  temporaryDirectory,
  until,
} from '@vmux/testing';
import { ApiClient } from './api-client';

const SANDBOXES = ['runner/ns/s', 'modal/workers/s', 'cloudflare/ns/s'];
const PATIENCE = { timeoutMs: 60_000, everyMs: 20 };

/** The stack of one machine as its users start it. */
export class EmbeddedStack {
  private settings: NodeJS.ProcessEnv = {};
  private running: RunningProcess<string> | undefined;
  /** Where it keeps everything, once it is started. */
  dataDir = '';

  static async start(
    engine: DockerEngine | null = null,
    more: NodeJS.ProcessEnv = {},
  ): Promise<EmbeddedStack> {
    const stack = new EmbeddedStack();
    await stack.start(engine, more);
    return stack;
  }

  async start(engine: DockerEngine | null = null, more: NodeJS.ProcessEnv = {}): Promise<void> {
    this.dataDir = temporaryDirectory('time');
    const docker = engine
      ? { DOCKER_HOST: `unix://${engine.socketPath}`, VMUX_DOCKER_IMAGE: engine.image }
      : { DOCKER_HOST: 'unix:///nowhere' };
    this.settings = { ...docker, ...more, VMUX_DATA_DIR: this.dataDir, VMUX_PORT: '0' };
    this.running = await started(this.settings);
  }

  get api(): ApiClient {
    return new ApiClient(this.process.ready, this.key);
  }

  /** For programs that are to talk to it. */
  get env(): NodeJS.ProcessEnv {
    return { VMUX_URL: this.process.ready, VMUX_API_KEY: this.key, VMUX_DATA_DIR: this.dataDir };
  }

  /** On the same data; its address may be another one. */
  async killedAndStartedAgain(): Promise<void> {
    await this.process.kill('SIGKILL');
    this.running = await started(this.settings);
  }

  get output(): string {
    return this.process.output();
  }

  private get process(): RunningProcess<string> {
    if (!this.running) throw new Error('the stack is not started');
    return this.running;
  }

  private get key(): string {
    return readFileSync(join(this.dataDir, 'api-key'), 'utf8').trim();
  }

  /** Of a process of the stack, which is started again when it dies. */
  pidOf(name: string): number {
    const record = JSON.parse(readFileSync(join(this.dataDir, 'stack.json'), 'utf8')) as {
      readonly parts: readonly { readonly name: string; readonly pid: number }[];
    };
    const part = record.parts.filter((each) => each.name === name).at(-1);
    if (!part) throw new Error(`the stack has no ${name}`);
    return part.pid;
  }

  /** Kills its gateway and returns once another one serves in its place. */
  async gatewayReplaced(): Promise<void> {
    const before = this.pidOf('gateway');
    process.kill(before, 'SIGKILL');
    await until(
      async () => {
        const reply = await this.api.get('/health').catch(() => null);
        return reply !== null && this.pidOf('gateway') !== before;
      },
      { timeoutMs: 60_000, everyMs: 100 },
    );
  }

  /** Sandboxes outlive the stack: they end with their sessions. */
  async stop(): Promise<void> {
    if (!this.running) return;
    const { json } = await this.api.get('/v1/sessions?limit=200');
    for (const { id, status } of json.sessions)
      if (!['stopped', 'failed'].includes(status))
        await this.api.post(`/v1/sessions/${id}/stop?grace=0ms`);
    await until(() => this.sandboxes().length === 0, PATIENCE);
    await this.process.stop();
  }

  /** Of this machine, and of the emulators: where a cloud says that one has ended, it may still be going. */
  private sandboxes(): readonly string[] {
    return SANDBOXES.map((path) => join(this.dataDir, path))
      .filter((path) => existsSync(path))
      .flatMap((path) => readdirSync(path));
  }

  async create(body: object = {}): Promise<ClientSession> {
    const headers = { 'idempotency-key': randomUUID() };
    const { status, json } = await until(async () => {
      const reply = await this.api.post('/v1/sessions', { name: 'time', ...body }, headers);
      if (reply.status >= 500) throw new Error(reply.text);
      return reply;
    }, PATIENCE);
    if (status !== 201) throw new Error(`not created: ${JSON.stringify(json)}`);
    const session = new ClientSession(this.api, json.id);
    // One that rests early is there too.
    await until(async () => (await session.info()).status !== 'starting', PATIENCE);
    return session;
  }

  session(id: string): ClientSession {
    return new ClientSession(this.api, id);
  }
}

const started = (settings: NodeJS.ProcessEnv): Promise<RunningProcess<string>> =>
  startProcess({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/apps/cli/src/stack/main.js')],
    env: { ...process.env, ...settings },
    ready: (line) => /^vmux serves at (\S+)/.exec(line)?.[1],
    readyTimeoutMs: 90_000,
  });

/** A session as a client sees it. */
export class ClientSession {
  readonly path: string;

  constructor(
    private readonly api: ApiClient,
    readonly id: string,
  ) {
    this.path = `/v1/sessions/${id}`;
  }

  async info() {
    return (await this.api.get(this.path)).json;
  }

  async ask(verb: string, body: object = {}) {
    return this.api.post(`${this.path}/${verb}`, body);
  }

  /** Once nothing is under way. */
  becomes(status: string) {
    return until(async () => {
      const info = await this.info();
      if (info.status === status && info.operation === null) return info;
      throw new Error(`${info.status}, ${info.operation}, ${info.message}`);
    }, PATIENCE);
  }

  async start(command: string, more: object = {}): Promise<string> {
    const { status, json } = await this.ask('execs', { command, ...more });
    if (status !== 201) throw new Error(`not issued: ${JSON.stringify(json)}`);
    return json.id;
  }

  /** Its output, once it has ended with 0. */
  async run(command: string): Promise<string> {
    const { json } = await this.api.post(`${this.path}/execs?wait=60s`, { command });
    if (json.exit?.kind !== 'exited' || json.exit.code !== 0)
      throw new Error(`${command}: ${JSON.stringify(json)}`);
    return json.output.stdout.text;
  }

  async ended(exec: string) {
    return (await this.api.get(`${this.path}/execs/${exec}/wait?wait=60s`)).json;
  }

  async exec(exec: string) {
    return (await this.api.get(`${this.path}/execs/${exec}`)).json;
  }

  async output(exec: string): Promise<string> {
    const { bytes } = await this.api.raw(`${this.path}/logs?exec=${exec}&stream=stdout`);
    return bytes.toString();
  }

  async events(): Promise<{ revision: number; type: string; data: Record<string, unknown> }[]> {
    const { text } = await this.api.get(`${this.path}/events`);
    return text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  }

  async types(): Promise<string[]> {
    return (await this.events()).map(({ type }) => type);
  }

  /** Taken, and portable. */
  async checkpoint(name?: string): Promise<string> {
    const { status, json } = await this.ask('checkpoints', { name });
    if (status !== 202) throw new Error(`not asked: ${JSON.stringify(json)}`);
    await until(async () => {
      const { checkpoints } = await this.info();
      const found = checkpoints.find(({ id }: { id: string }) => id === json.checkpointId);
      if (found?.status === 'taken') return found;
      throw new Error(`${found?.status}: ${found?.message}`);
    }, PATIENCE);
    return json.checkpointId;
  }

  async stop(): Promise<void> {
    await this.ask('stop?grace=0ms');
    await this.becomes('stopped');
  }
}
