import { spawn } from 'node:child_process';
import type { Duplex } from 'node:stream';
import type { DockerEngine } from '@vmux/testing';
import Docker from 'dockerode';
import { type Keys, writing } from './subject';

/** What one would use instead. */
export class DockerRival {
  private readonly docker: Docker;
  private container: Docker.Container | undefined;
  /** A follower of a container that ends may be cut off before the last byte. */
  lostBytes = 0;

  constructor(private readonly engine: DockerEngine) {
    this.docker = new Docker({ socketPath: engine.socketPath });
  }

  async start(): Promise<void> {
    this.container = await this.docker.createContainer({
      Image: this.engine.image,
      Cmd: ['sleep', '100000'],
    });
    await this.container.start();
  }

  async exec(): Promise<void> {
    const exec = await this.running.exec({ Cmd: ['/bin/true'], AttachStdout: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await new Promise((done) => stream.on('close', done).on('end', done));
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`docker exec ended with ${ExitCode}`);
  }

  execByCli(): Promise<void> {
    return this.cli('exec', this.running.id, '/bin/true');
  }

  run(): Promise<void> {
    return this.cli('run', '--rm', this.engine.image, 'echo', 'here');
  }

  async output(mib: number): Promise<void> {
    const container = await this.docker.createContainer({
      Image: this.engine.image,
      Cmd: ['sh', '-c', writing(mib)],
    });
    await container.start();
    const logs = this.command('logs', '-f', container.id);
    let bytes = 0;
    logs.stdout.on('data', (piece: Buffer) => {
      bytes += piece.length;
    });
    await ended(logs);
    this.lostBytes += mib * 1024 * 1024 - bytes;
    await container.remove({ force: true });
  }

  async terminal(): Promise<Keys> {
    const exec = await this.running.exec({
      ...{ Cmd: ['/bin/cat'], Tty: true, AttachStdin: true, AttachStdout: true },
    });
    const stream: Duplex = await exec.start({ hijack: true, stdin: true, Tty: true });
    return {
      strike: () =>
        new Promise((done) => {
          stream.once('data', () => done());
          stream.write('x');
        }),
      leave: () => stream.destroy(),
    };
  }

  private get running(): Docker.Container {
    if (!this.container) throw new Error('not started');
    return this.container;
  }

  private command(...args: string[]) {
    return spawn('docker', ['--host', `unix://${this.engine.socketPath}`, ...args]);
  }

  private cli(...args: string[]): Promise<void> {
    const child = this.command(...args);
    child.stdout.resume();
    child.stderr.resume();
    return ended(child);
  }
}

export const ended = (child: ReturnType<typeof spawn>): Promise<void> =>
  new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`ended with ${code}`))));
  });
