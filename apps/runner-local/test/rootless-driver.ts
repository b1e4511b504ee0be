import { type ChildProcess, spawn } from 'node:child_process';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type {
  CallOptions,
  DriverCapabilities,
  NativeCheckpoint,
  Probe,
  SandboxDriver,
  SandboxId,
  SandboxRecord,
  SandboxSpec,
} from '@vmux/runner-kit';
import { projectRoot, releaseLater } from '@vmux/testing';
import type { NsDriverOptions } from '../src/drivers/ns-driver';
import { keyOf } from '../src/drivers/ns-store';
import { asUser, type OtherUser } from './rootless-target';

type Method = Exclude<keyof SandboxDriver, 'provider' | 'isolates' | 'workspaceOf' | 'restore'>;

export interface Call {
  readonly number: number;
  readonly method: Method | 'abort';
  readonly args: readonly unknown[];
}

export type Answer =
  | { readonly number: number; readonly value: unknown }
  | { readonly number: number; readonly fault: { readonly name: string } };

/** The driver of somebody who is not root, for a test that is: in a process of its own, called by messages. */
export class RootlessDriver implements SandboxDriver {
  readonly provider = 'ns';
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #next = 1;

  constructor(
    private readonly options: NsDriverOptions,
    user: OtherUser,
  ) {
    const program = join(projectRoot(), 'dist/apps/runner-local/test/rootless-host.js');
    const { command, args } = asUser(user, process.execPath, [program, JSON.stringify(options)]);
    this.#child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#child.on('message', (answer: Answer) => {
      this.#waiting.get(answer.number)?.(answer);
      this.#waiting.delete(answer.number);
    });
    this.#child.once('exit', () => {
      for (const [number, tell] of this.#waiting)
        tell({ number, fault: { name: 'the driver’s process has ended' } });
    });
    releaseLater(() => this.#end());
  }

  capabilities(options?: CallOptions): Promise<DriverCapabilities> {
    return this.#call('capabilities', [], options);
  }
  create(spec: SandboxSpec, options?: CallOptions): Promise<void> {
    return this.#call('create', [spec], options);
  }
  adopt(id: SandboxId): Promise<SandboxRecord> {
    return this.#call('adopt', [id]);
  }
  list(): Promise<readonly SandboxRecord[]> {
    return this.#call('list', []);
  }
  probe(id: SandboxId): Promise<Probe> {
    return this.#call('probe', [id]);
  }
  async openPipe(id: SandboxId, options?: CallOptions): Promise<Duplex> {
    await this.#call('openPipe', [id], options);
    return this.#connect(id, 'sock');
  }
  async openRemains(id: SandboxId, options?: CallOptions): Promise<Duplex> {
    await this.#call('openRemains', [id], options);
    return this.#connect(id, 'left');
  }
  suspend(id: SandboxId): Promise<void> {
    return this.#call('suspend', [id]);
  }
  resume(id: SandboxId): Promise<void> {
    return this.#call('resume', [id]);
  }
  checkpoint(id: SandboxId): Promise<NativeCheckpoint> {
    return this.#call('checkpoint', [id]);
  }
  restore(): Promise<void> {
    return Promise.reject(new Error('not of this driver'));
  }
  removed(id: SandboxId): Promise<readonly string[]> {
    return this.#call('removed', [id]);
  }
  destroy(id: SandboxId): Promise<void> {
    return this.#call('destroy', [id]);
  }
  async close(): Promise<void> {
    await this.#call('close', []);
    this.#end();
  }

  #connect(id: SandboxId, name: string): Promise<Duplex> {
    const socket = connect(join(this.options.dataDir, 's', keyOf(id), name));
    return new Promise((resolve, reject) => {
      socket.once('connect', () => resolve(socket));
      socket.once('error', reject);
    });
  }

  #end(): void {
    if (this.#child.connected) this.#child.disconnect();
  }

  #call<T>(method: Method, args: readonly unknown[], { signal }: CallOptions = {}): Promise<T> {
    const number = this.#next++;
    const send = (what: Call['method']) => this.#child.send({ number, method: what, args });
    const abort = () => send('abort');
    signal?.addEventListener('abort', abort, { once: true });
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(number, (answer) => {
        signal?.removeEventListener('abort', abort);
        if ('value' in answer) resolve(answer.value as T);
        else reject(Object.assign(new Error(answer.fault.name), answer.fault));
      });
      send(method);
    });
  }
}
