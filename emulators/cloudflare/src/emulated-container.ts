import { readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NsDriver } from '../../../apps/runner-local/src/drivers/ns-driver';
import { keyOf } from '../../../apps/runner-local/src/drivers/ns-store';
import { Entry } from '../../../workers/cloudflare/container/entry';
import type { LaunchBody } from '../../../workers/cloudflare/src/entry-client';
import type { SandboxName } from '../../../workers/cloudflare/src/wire';

export interface Local {
  readonly driver: NsDriver;
  /** Of that driver's sandboxes. */
  readonly sandboxesDir: string;
  /** Where containers are remembered. */
  readonly dir: string;
}

interface Remembered {
  readonly token: string;
  readonly boot: string;
  readonly name: SandboxName | null;
}

const lookEveryMs = 250;
const killedExitCode = 137;

/** A place to wait at until somebody ends it. */
class Hold {
  private reach: () => void = () => undefined;
  end: () => void = () => undefined;
  readonly reached = new Promise<void>((resolve) => {
    this.reach = resolve;
  });
  private readonly over = new Promise<void>((resolve) => {
    this.end = resolve;
  });

  async wait(): Promise<void> {
    this.reach();
    await this.over;
  }
}

/** One container: the program that it starts with runs here, its supervisor in a sandbox of this machine. */
export class EmulatedContainer {
  readonly ended: Promise<number>;
  entry: Entry;
  private end: (exitCode: number) => void = () => undefined;
  private hasEnded = false;
  private readonly looking: NodeJS.Timeout;
  private hold: Hold | undefined;

  private constructor(
    readonly id: string,
    private readonly local: Local,
    private readonly token: string,
    resumed?: Remembered,
  ) {
    this.ended = new Promise((resolve) => {
      this.end = resolve;
    });
    this.entry = this.boot(resumed);
    this.looking = setInterval(() => void this.look(), lookEveryMs);
  }

  static start(id: string, local: Local, token: string): EmulatedContainer {
    return new EmulatedContainer(id, local, token);
  }

  /** Those that outlived the process that started them. */
  static async findAll(local: Local): Promise<EmulatedContainer[]> {
    await mkdir(local.dir, { recursive: true, mode: 0o700 });
    const found: EmulatedContainer[] = [];
    for (const file of await readdir(local.dir)) {
      if (!/^[0-9a-f]{64}\.json$/.test(file)) continue;
      const remembered: Remembered = JSON.parse(await readFile(join(local.dir, file), 'utf8'));
      const { name, token } = remembered;
      if (name && (await local.driver.probe(name)).state !== 'gone')
        found.push(new EmulatedContainer(file.slice(0, 64), local, token, remembered));
      else {
        if (name) await local.driver.destroy(name);
        await rm(join(local.dir, file));
      }
    }
    return found;
  }

  get running(): boolean {
    return !this.hasEnded;
  }

  /** SIGKILL to everything, the disk with it. */
  async destroy(exitCode = killedExitCode): Promise<void> {
    if (this.hasEnded) return;
    this.hasEnded = true;
    clearInterval(this.looking);
    this.letGo();
    this.entry.cut();
    if (this.entry.launched) await this.local.driver.destroy(this.entry.launched);
    await rm(this.file, { force: true });
    this.end(exitCode);
  }

  /** SIGTERM, and the end after the grace. */
  evict(graceMs: number): void {
    this.entry.evict(Date.now() + graceMs);
    setTimeout(() => void this.destroy(143), graceMs).unref();
  }

  /** The next save stops before its last part until `letGo`. */
  holdSave(): void {
    this.letGo();
    this.hold = new Hold();
  }

  /** Once a save has stopped there. */
  async held(): Promise<void> {
    await this.hold?.reached;
  }

  letGo(): void {
    this.hold?.end();
    this.hold = undefined;
  }

  async beforeLastPartOfSave(): Promise<void> {
    await this.hold?.wait();
  }

  /** What a lost host looks like from outside: the same container, running, with an empty disk. */
  async replaceSilently(): Promise<void> {
    const former = this.entry;
    this.entry = this.boot();
    former.cut();
    if (former.launched) await this.local.driver.destroy(former.launched);
  }

  /** The first process inside ends, as when it is killed for want of memory. */
  killFirstProcess(): void {
    const name = this.entry.launched;
    if (!name) return;
    const pid = readFileSync(join(this.local.sandboxesDir, keyOf(name), 'pid'), 'utf8');
    process.kill(Number(pid.split(' ')[0]), 'SIGKILL');
  }

  /** Lets go of it; it goes on. */
  leave(): void {
    clearInterval(this.looking);
    this.letGo();
    this.entry.cut();
  }

  private get file(): string {
    return join(this.local.dir, `${this.id}.json`);
  }

  private boot(resumed?: Remembered): Entry {
    const { driver } = this.local;
    const entry = new Entry({
      token: this.token,
      resumed,
      inside: {
        launch: async (body) => this.launch(entry, body),
        connect: (name) => driver.openPipe(name),
      },
    });
    return entry;
  }

  private async launch(entry: Entry, { name, limits }: LaunchBody): Promise<void> {
    const remembered: Remembered = { token: this.token, boot: entry.boot, name };
    await mkdir(this.local.dir, { recursive: true, mode: 0o700 });
    await writeFile(`${this.file}.new`, JSON.stringify(remembered), { mode: 0o600 });
    await rename(`${this.file}.new`, this.file);
    await this.local.driver.create({ id: name, limits, image: null, egress: false, gpu: null });
  }

  private async look(): Promise<void> {
    const { entry } = this;
    if (!entry.launched) return;
    const { state } = await this.local.driver.probe(entry.launched);
    if (state === 'gone' && entry === this.entry) await this.destroy();
  }
}
