import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface EmulatedSandbox {
  readonly sandboxId: string;
  readonly gpu: string;
  readonly result: object | null;
  readonly tags: readonly { readonly tagName: string; readonly tagValue: string }[];
}

export interface ConnectCounts {
  readonly tokens: number;
  readonly opened: number;
  readonly refused: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

export interface EmulatedImage {
  readonly imageId: string;
  readonly isGone: boolean;
  readonly creates: number;
}

/** The Modal emulator of a stack that was started with `modal-local`. */
export class ModalControl {
  constructor(private readonly dataDir: string) {}

  async faults(faults: object): Promise<void> {
    await this.ask('PUT', '/faults', faults);
  }

  /** Of one session, the oldest first; those that have ended too. */
  async sandboxesOf(sessionId: string): Promise<readonly EmulatedSandbox[]> {
    const all = (await this.ask('GET', '/sandboxes')) as readonly EmulatedSandbox[];
    return all.filter(({ tags }) => tags.some(({ tagValue }) => tagValue === sessionId));
  }

  /** What was a sandbox's files at some moment, and how many sandboxes were made of it. */
  async images(): Promise<readonly EmulatedImage[]> {
    return (await this.ask('GET', '/images')) as readonly EmulatedImage[];
  }

  async remove({ imageId }: EmulatedImage): Promise<void> {
    await this.ask('DELETE', `/images/${imageId}`);
  }

  async lose({ sandboxId }: EmulatedSandbox): Promise<void> {
    await this.ask('POST', `/sandboxes/${sandboxId}/lost`);
  }

  /** Of requests with connect tokens, so far. */
  async connects(): Promise<ConnectCounts> {
    const { connects } = (await this.ask('GET', '/calls')) as { connects: ConnectCounts };
    return connects;
  }

  private async ask(method: string, path: string, body?: object): Promise<unknown> {
    const file = join(this.dataDir, 'modal/control.json');
    const { url, token }: { url: string; token: string } = JSON.parse(readFileSync(file, 'utf8'));
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}` },
      body: body ? JSON.stringify(body) : undefined,
    });
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }
}
