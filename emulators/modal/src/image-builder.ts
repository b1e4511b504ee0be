import { createHash, randomBytes } from 'node:crypto';
import { hasEnded, type SandboxDriver } from '@vmux/runner-kit';
import { Box } from './box';
import type { ImageShelf } from './image-shelf';
import { type Result, STATUS } from './wire';

export interface ImageDefinition {
  readonly dockerfileCommands: readonly string[];
  readonly baseImages: readonly { readonly imageId: string }[];
}

interface Build {
  readonly imageId: string;
  readonly commands: readonly string[];
  log: readonly string[];
  result: Result | null;
}

const BUILDS = 'build-';
const LIMITS = { cpus: 2, memoryMiB: 1024, diskMiB: 4096, pids: 1024 };
const SUCCESS: Result = { status: STATUS.success, exitcode: 0, exception: '' };

/** Runs the RUN lines of an image in a sandbox of this machine, one after the other, and keeps what they left. */
export class ImageBuilder {
  private readonly builds = new Map<string, Build>();
  private changed: (() => void)[] = [];

  constructor(
    private readonly images: ImageShelf,
    private readonly driver: SandboxDriver,
  ) {}

  /** Removes what a builder that was killed left half built. */
  async open(): Promise<void> {
    for (const { id } of await this.driver.list())
      if (id.instance.startsWith(BUILDS)) await this.driver.destroy(id);
  }

  /** Every build that was begun. */
  get all(): readonly Build[] {
    return [...this.builds.values()];
  }

  /** The same definition is the same image; one that failed is built again. */
  getOrCreate({ dockerfileCommands: commands, baseImages }: ImageDefinition) {
    const imageId = `im-${digest(JSON.stringify([commands, baseImages.map((base) => base.imageId)]))}`;
    const refused = commands.find((command) => /^FROM\s+(nowhere|nonexistent)/i.test(command));
    if (refused) return { imageId, result: failed(`${refused}: no such image`) };
    const steps = commands.filter((command) => !/^FROM\s/i.test(command));
    if (steps.length === 0 || this.images.has(imageId)) return { imageId, result: SUCCESS };
    const known = this.builds.get(imageId);
    if (!known || known.result?.status === STATUS.failure)
      this.begin(imageId, steps, baseImages[0]?.imageId);
    return { imageId };
  }

  /** What the build says from that entry on, and at last how it ended. */
  async *join(imageId: string, after: string, signal: AbortSignal) {
    let seen = Number(after || 0);
    for (;;) {
      const build = this.builds.get(imageId);
      if (!build) {
        yield { result: failed('no such build'), eof: true };
        return;
      }
      const lines = build.log.slice(seen);
      seen = build.log.length;
      if (lines.length > 0)
        yield { taskLogs: lines.map((data) => ({ data })), entryId: String(seen) };
      if (build.result) yield { result: build.result, eof: true };
      if (build.result || signal.aborted) return;
      await new Promise<void>((resolve) => this.changed.push(resolve));
    }
  }

  private begin(imageId: string, commands: readonly string[], base: string | undefined): void {
    const build: Build = { imageId, commands, log: [], result: null };
    this.builds.set(imageId, build);
    const finish = (result: Result) => {
      build.result = result;
      this.tell();
    };
    this.run(build, base).then(finish, (fault: Error) => finish(failed(fault.message)));
  }

  private async run(build: Build, base: string | undefined): Promise<Result> {
    const instance = `${BUILDS}${randomBytes(8).toString('hex')}`;
    const box = new Box(this.driver, { sessionId: 'modal-0000', epoch: 1, instance });
    const spec = { limits: LIMITS, image: null, egress: false, gpu: null };
    await box.create(spec, base === undefined ? undefined : this.images.diskOf(base));
    try {
      for (const [index, command] of build.commands.entries()) {
        this.say(build, `Step ${index + 1}: ${command}\n`);
        const [, line] = /^RUN\s+(.*)$/i.exec(command) ?? [];
        if (line === undefined) return failed(`${command}: only RUN is emulated`);
        const code = await this.step(build, box, `step-${index}`, line);
        if (code !== 0) return failed(`${command} exited with ${code}`);
      }
      await this.images.keep(build.imageId, await box.snapshot());
      return SUCCESS;
    } finally {
      await box.destroy();
    }
  }

  private async step(build: Build, box: Box, execId: string, line: string): Promise<number> {
    const { signal } = new AbortController();
    const argv = ['sh', '-c', `exec 2>&1 < /dev/null; ${line}`];
    await box.exec(execId, { argv, cwd: undefined, env: {} });
    for await (const data of box.output(execId, 'stdout', 0, signal))
      this.say(build, data.toString('utf8'));
    const exec = await box.ended(execId, signal);
    return hasEnded(exec) && exec.outcome.kind === 'exited' ? exec.outcome.code : 137;
  }

  private say(build: Build, text: string): void {
    build.log = [...build.log, text];
    this.tell();
  }

  private tell(): void {
    for (const tell of this.changed.splice(0)) tell();
  }
}

const failed = (exception: string): Result => ({
  status: STATUS.failure,
  exitcode: 1,
  exception,
});

const digest = (text: string): string =>
  createHash('sha256').update(text).digest('hex').slice(0, 22);
