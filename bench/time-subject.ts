/** Seldom enough not to be in the way of what it looks for. */
const LOOK_MS = 200;

/** vmux as a client sees it: every call waits until it is done. */
export class TimeSubject {
  constructor(
    private readonly url: string,
    private readonly key: string,
  ) {}

  async created(): Promise<string> {
    const spec = { resources: { diskMiB: 4096, memoryMiB: 2048, cpus: 2 } };
    const { id } = await this.call('POST', '/v1/sessions', { name: 'bench', ...spec });
    await this.run(id, ['/bin/true']);
    return id;
  }

  async run(session: string, argv: readonly string[]): Promise<void> {
    const path = `/v1/sessions/${session}/execs?wait=300s`;
    const { exit } = await this.call('POST', path, { argv });
    if (exit?.code !== 0) throw new Error(`${argv[0]}: ${JSON.stringify(exit)}`);
  }

  async ask(session: string, verb: string, body: object = {}): Promise<Json> {
    return this.call('POST', `/v1/sessions/${session}/${verb}?wait=300s`, body);
  }

  async checkpoint(session: string): Promise<string> {
    return (await this.ask(session, 'checkpoints')).checkpointId;
  }

  async rollback(session: string, checkpointId: string): Promise<void> {
    const { session: after } = await this.ask(session, 'rollback', { checkpointId });
    if (after?.status !== 'running') throw new Error('not rolled back');
  }

  async fork(session: string, checkpointId: string): Promise<string> {
    const { forks } = await this.ask(session, 'fork', { checkpointId });
    return forks[0];
  }

  /** Children, each of which has run something. */
  async crowd(session: string, checkpointId: string, count: number): Promise<readonly string[]> {
    const { forks } = await this.ask(session, 'fork', { checkpointId, count });
    await Promise.all(forks.map((id: string) => this.run(id, ['/bin/true'])));
    return forks;
  }

  /** How long the portable form took, from when the provider's was there, once it is there too. */
  async archived(session: string, checkpointId: string): Promise<number> {
    for (;;) {
      const { text } = await this.request('GET', `/v1/sessions/${session}/events`);
      const found = (type: string, id: (data: Json) => string): Json =>
        text
          .split('\n')
          .filter((line) => line.includes(`"${type}"`))
          .map((line) => JSON.parse(line) as Json)
          .find(({ data }) => id(data) === checkpointId)?.data;
      const taken = found('CheckpointTaken', ({ checkpoint }) => checkpoint.checkpointId);
      const archived = found('CheckpointArchived', (data) => data.checkpointId);
      if (taken?.checkpoint.artifact) throw new Error('the provider has no form of its own here');
      if (found('ArchiveFailed', (data) => data.checkpointId)) throw new Error('not archived');
      if (taken && archived) return archived.at - taken.at;
      await new Promise((done) => setTimeout(done, LOOK_MS));
    }
  }

  async stop(session: string): Promise<void> {
    await this.call('POST', `/v1/sessions/${session}/stop?grace=0ms`, {});
  }

  private async call(method: string, path: string, body: object): Promise<Json> {
    const { status, text } = await this.request(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`);
    return JSON.parse(text);
  }

  private async request(method: string, path: string, body?: object) {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.key}`,
        ...(body ? { 'content-type': 'application/json' } : {}),
      },
      body: body && JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  }
}

// biome-ignore lint/suspicious/noExplicitAny: what an answer holds is known by who asked for it
type Json = any;
