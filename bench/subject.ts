import { Terminal, Vmux } from '@vmux/sdk';
import { seededRandom } from '@vmux/testing';
import { PatientClient } from '../test/chaos/client';
import type { Cast } from '../test/support/cast';

/** Writes so many MiB, in lines, as fast as it is taken. */
export const writing = (mib: number): string =>
  `yes 'sixty-three bytes of text and the end of its line, over and over' | head -c ${mib}M`;

export interface Keys {
  /** Types one character and waits for its echo. */
  strike(): Promise<void>;
  leave(): void;
}

/** vmux as a client sees it, over HTTP. */
export class Subject {
  private readonly client: PatientClient;
  private readonly vmux: Vmux;

  constructor({ gateways, apiKey }: Pick<Cast, 'gateways' | 'apiKey'>) {
    this.client = new PatientClient(gateways.slice(0, 1), apiKey(), seededRandom(1));
    this.vmux = new Vmux({ url: gateways[0] ?? '', apiKey: apiKey() });
  }

  async created(): Promise<string> {
    const answer = await this.client.call('POST', '/v1/sessions', { name: 'bench' });
    if (answer.status !== 201) throw new Error(`create: ${JSON.stringify(answer.json)}`);
    return answer.json.id;
  }

  async stop(session: string): Promise<void> {
    await this.client.call('POST', `/v1/sessions/${session}/stop`, {});
  }

  async exec(session: string): Promise<void> {
    await this.run(session, { argv: ['/bin/true'] });
  }

  async firstOutput(session: string): Promise<void> {
    const { output } = await this.run(session, { argv: ['/bin/echo', 'here'] });
    if (output.stdout.text !== 'here\n') throw new Error('no output');
  }

  /** Written, durable, read back and counted. */
  async output(session: string, mib: number): Promise<void> {
    const path = `/v1/sessions/${session}/execs`;
    const { json } = await this.client.call('POST', path, { command: writing(mib) });
    const { bytes } = await this.client.read(
      `/v1/sessions/${session}/logs?exec=${json.id}&stream=stdout&follow=true`,
    );
    if (bytes.length !== mib * 1024 * 1024) throw new Error(`${bytes.length} bytes came back`);
  }

  /** A reader of ours that was cut off and comes back, until it has its first piece. */
  async reconnect(session: string, execId: string, lastEventId: string): Promise<void> {
    const query = { exec: execId, stream: 'stdout', follow: true };
    const headers = { 'last-event-id': lastEventId };
    const offset = Number(lastEventId.split('@')[0]);
    for await (const { data } of this.vmux.events(`/v1/sessions/${session}/logs`, {
      ...{ query, headers },
    })) {
      if (isRecord(data) && data.offset === offset) return;
      throw new Error(`${JSON.stringify(data)} does not follow ${lastEventId}`);
    }
    throw new Error(`nothing follows ${lastEventId}`);
  }

  /** A reader that knows nothing but how many bytes it has. */
  async readFrom(session: string, execId: string, offset: number): Promise<void> {
    const path = `/v1/sessions/${session}/logs?exec=${execId}&stream=stdout&follow=true&offset=${offset}`;
    const { bytes, status } = await this.client.read(path, 1);
    if (bytes.length === 0) throw new Error(`nothing at offset ${offset}: ${status}`);
  }

  async terminal(session: string): Promise<Keys> {
    const path = `/v1/sessions/${session}/execs`;
    const pty = { cols: 80, rows: 24 };
    const { json } = await this.client.call('POST', path, { argv: ['/bin/cat'], pty });
    // From the first byte on: the screen as it is might show an echo before it is asked for.
    const terminal = new Terminal(this.vmux, `${path}/${json.id}/attach`, { offset: 0 });
    const shown = terminal[Symbol.asyncIterator]();
    for (let item = await shown.next(); ; item = await shown.next()) {
      if (item.done) throw new Error('the terminal ended');
      if (item.value.kind === 'hello') break;
    }
    return {
      strike: async () => {
        await terminal.type('x');
        for (let item = await shown.next(); !item.done; item = await shown.next())
          if (item.value.kind === 'bytes' && Buffer.from(item.value.bytes).includes('x')) return;
        throw new Error('the terminal ended');
      },
      leave: () => terminal.detach(),
    };
  }

  private async run(session: string, body: object) {
    const answer = await this.client.call('POST', `/v1/sessions/${session}/execs?wait=60s`, body);
    if (answer.json.exit?.code !== 0) throw new Error(`exec: ${JSON.stringify(answer.json)}`);
    return answer.json;
  }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;
