import { spawn } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import Docker from 'dockerode';

const FILE_BYTES = 51_200;
const HEARD_AFTER_MS = 50;

/** Files of random bytes, two hundred to a directory; `from` and `to` say which. */
export const filling = (directory: string, from: number, to: number): readonly string[] => [
  'python3',
  '-c',
  `import os
for i in range(${from}, ${to}):
  d = '${directory}/%d' % (i // 200)
  os.makedirs(d, exist_ok=True)
  open('%s/%d' % (d, i), 'wb').write(os.urandom(${FILE_BYTES}))
os.sync()`,
];

/** The same files in a container. */
export class ContainerOfFiles {
  private container: Docker.Container | undefined;
  private image: string | undefined;

  constructor(
    private readonly docker: Docker,
    private readonly base: string,
  ) {}

  async start(files: number): Promise<void> {
    this.container = await this.docker.createContainer({
      Image: this.base,
      Cmd: ['sleep', '100000'],
    });
    await this.container.start();
    await this.exec(filling('/workspace', 0, files));
  }

  change(): Promise<void> {
    return this.exec(filling('/workspace', 0, 1));
  }

  async commit(): Promise<void> {
    const { Id } = await this.own().commit({ pause: true });
    this.image = Id;
  }

  async runCommitted(): Promise<void> {
    const made = await this.docker.createContainer({ Image: this.image, Cmd: ['/bin/true'] });
    await made.start();
    await made.wait();
    await made.remove({ force: true });
  }

  async removeImage(): Promise<void> {
    if (this.image) await this.docker.getImage(this.image).remove({ force: true });
    this.image = undefined;
  }

  pause(): Promise<unknown> {
    return this.own().pause();
  }

  unpause(): Promise<unknown> {
    return this.own().unpause();
  }

  /**
   * The engine hears once more from below, a little later, that it has paused a container: when that has been
   * undone by then, it takes it for paused and can neither pause nor unpause it any more.
   */
  heard(): Promise<void> {
    return new Promise((done) => setTimeout(done, HEARD_AFTER_MS));
  }

  end(): Promise<unknown> {
    return this.own().remove({ force: true });
  }

  private own(): Docker.Container {
    if (!this.container) throw new Error('not started');
    return this.container;
  }

  private async exec(argv: readonly string[]): Promise<void> {
    const exec = await this.own().exec({ Cmd: [...argv], AttachStdout: true, AttachStderr: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await new Promise((done) => stream.on('close', done).on('end', done));
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`docker exec ended with ${ExitCode}`);
  }
}

/** The same files in a directory. */
export class PlainFiles {
  constructor(private readonly directory: string) {}

  async fill(files: number): Promise<void> {
    mkdirSync(this.directory, { recursive: true });
    const [program = '', ...args] = filling(this.directory, 0, files);
    await ended(program, args);
  }

  copy(): Promise<void> {
    return ended('cp', ['-a', this.directory, `${this.directory}-copy`]);
  }

  async removeCopy(): Promise<void> {
    rmSync(`${this.directory}-copy`, { recursive: true });
  }

  pack(): Promise<void> {
    const script = 'tar -C "$0" -cf - . | zstd -1 -q -f -o "$0.tar.zst"';
    return ended('sh', ['-c', script, this.directory]);
  }

  remove(): void {
    for (const path of [this.directory, `${this.directory}.tar.zst`])
      rmSync(path, { recursive: true, force: true });
  }
}

const ended = (program: string, args: readonly string[]): Promise<void> =>
  new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'ignore' });
    child.on('error', reject);
    child.on('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`${program} ended with ${code}`)),
    );
  });
