import type { SandboxId } from '@vmux/runner-kit';
import type { SeededRandom } from '@vmux/testing';
import type { Answer, PatientClient } from './client';
import { type Stage, VERBS, type VerbName } from './stage';
import { LOOK, treeLine } from './trees';

/** What was asked of a session's time, and what every repeat of it was answered. */
export interface Verb {
  readonly name: VerbName;
  readonly session: string;
  readonly answers: Answer[];
}

export interface TimeScript {
  /** Every session that was created or forked here and not deleted again. */
  readonly sessions: Set<string>;
  readonly deleted: Set<string>;
  /** That were theirs: their histories tell of them no more. */
  readonly deletedSandboxes: SandboxId[];
  readonly verbs: Verb[];
  /** By exec: the version of the tree that it makes. */
  readonly writes: Map<string, number>;
  /** By exec: the session that it looks at. */
  readonly looks: Map<string, string>;
  /** Forks that ended by themselves, and why. */
  readonly failed: Map<string, string>;
  /** What each session's client waits for. */
  readonly waiting: Map<string, string>;
}

export const newTimeScript = (): TimeScript => ({
  sessions: new Set(),
  deleted: new Set(),
  deletedSandboxes: [],
  verbs: [],
  writes: new Map(),
  looks: new Map(),
  failed: new Map(),
  waiting: new Map(),
});

export interface TimeSettings {
  readonly client: PatientClient;
  readonly random: SeededRandom;
  readonly stage: Stage;
  readonly isOpen: () => boolean;
}

/** Sandboxes of sessions with this name are given back after a while, as a provider's with a limit are. */
export const BRIEF = 'brief';
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Writes a tree, does something to the session's time, and looks what the tree is then. */
export async function playTime(
  settings: TimeSettings,
  script: TimeScript,
  index: number,
): Promise<void> {
  const { client, stage } = settings;
  const name = index % 2 === 0 ? `time-${index}` : `${BRIEF}-${index}`;
  // Sandboxes that are given back are namespaces; the others may be anywhere from the beginning.
  const provider = index % 2 === 0 ? stage.providers.at(-1) : undefined;
  const session = await client.create({ name, ...(provider && { provider }) });
  const player = new Player(settings, script, session, name.startsWith(BRIEF));
  script.sessions.add(player.session);
  await player.play();
}

class SessionEnded extends Error {}

class Player {
  private readonly children: Promise<void>[] = [];
  /** A write that nobody has waited for yet: whatever looks or writes waits for it first. */
  private writing: string | null = null;
  private readonly client: PatientClient;
  private readonly random: SeededRandom;
  private readonly stage: Stage;

  constructor(
    private readonly settings: TimeSettings,
    private readonly script: TimeScript,
    readonly session: string,
    private readonly isBrief: boolean,
  ) {
    this.client = settings.client;
    this.random = settings.random;
    this.stage = settings.stage;
  }

  async play(): Promise<void> {
    const { random, stage } = this;
    while (this.settings.isOpen()) {
      if (random.integer(3) > 0) await this.write(random.integer(2) === 0);
      await this.act(stage.wanted ?? random.pick(VERBS));
      await this.settled();
      await this.look();
      await pause(random.integer(150));
    }
    await this.settled();
    await this.look();
    await Promise.all(this.children);
    this.script.waiting.delete(this.session);
  }

  private async act(verb: VerbName): Promise<void> {
    switch (verb) {
      case 'checkpoint':
        await this.ask(verb, 'checkpoints', { name: `kept-${this.random.integer(1000)}` });
        return;
      case 'suspend':
        await this.ask(verb, 'suspend', {});
        if (this.random.integer(2) === 0) await this.settled();
        return;
      case 'resume':
        await this.ask('suspend', 'suspend', {});
        await this.settled();
        await this.ask(verb, 'resume', {});
        return;
      case 'rollback': {
        const checkpointId = await this.anyCheckpoint();
        if (checkpointId) await this.ask(verb, 'rollback', { checkpointId, ...this.anyBase });
        return;
      }
      case 'fork':
        return this.fork();
      case 'move': {
        const { provider } = await this.info();
        const to = this.stage.providers.find((each) => each !== provider);
        if (to) await this.ask(verb, 'move', { provider: to, allowBaseChange: true });
        return;
      }
      case 'release':
        // It comes by itself: all there is to do is to be there while it does.
        if (!this.isBrief) return;
        this.stage.begins(verb);
        await pause(500 + this.random.integer(1_500));
        return;
      case 'rehydrate':
        if (this.random.integer(3) > 0 && this.stage.wanted !== verb) return;
        if (await this.stage.strike(this.session)) await this.rehydrate();
        return;
    }
  }

  /** Refused until the loss is known. */
  private async rehydrate(): Promise<void> {
    for (let tries = 0; tries < 40; tries += 1) {
      const { status, operation } = await this.info();
      if (status === 'lost' && operation === null) {
        await this.ask('rehydrate', 'rehydrate', this.anyBase);
        return;
      }
      await pause(100);
    }
  }

  /** Providers have different bases, and sessions go from one to the other. */
  private get anyBase() {
    return { allowBaseChange: this.stage.providers.length > 1 };
  }

  private async fork(): Promise<void> {
    const count = 1 + this.random.integer(2);
    const checkpointId = await this.anyCheckpoint();
    if (!checkpointId) return;
    const before: readonly string[] = (await this.info()).forks;
    const asked = await this.ask('fork', 'fork', { checkpointId, count });
    if (!asked || asked.status >= 300) return;
    this.script.waiting.set(this.session, `for ${count} forks of ${asked.json.forkId}`);
    for (;;) {
      const { forks } = await this.info();
      const made = (forks as string[]).filter((each) => !before.includes(each));
      for (const child of made) this.adopt(child);
      if (made.length >= count) return;
      await pause(50);
    }
  }

  private adopt(child: string): void {
    if (this.script.sessions.has(child) || this.script.deleted.has(child)) return;
    this.script.sessions.add(child);
    const player = new Player(this.settings, this.script, child, this.isBrief);
    this.children.push(player.beChild().catch((fault) => player.failed(fault)));
  }

  /** Looks at what it was born with, writes over it, and ends; some are deleted. */
  private async beChild(): Promise<void> {
    await this.settled();
    await this.look();
    await this.write(true);
    await this.look();
    const isDeleted = this.random.integer(2) === 0;
    const path = `/v1/sessions/${this.session}`;
    if (isDeleted) {
      const { sandbox } = await this.info();
      if (sandbox) {
        const { epoch, instance } = sandbox;
        this.script.deletedSandboxes.push({ sessionId: this.session, epoch, instance });
      }
      this.script.deleted.add(this.session);
      this.script.sessions.delete(this.session);
      await this.client.call('DELETE', `${path}?force=true`, undefined, this.random.uuid());
    } else await this.client.call('POST', `${path}/stop?grace=0ms`, {}, this.random.uuid());
    this.script.waiting.delete(this.session);
  }

  /** Whether it may have is for the checker to say. */
  private async failed(fault: unknown): Promise<void> {
    if (!(fault instanceof SessionEnded)) throw fault;
    const { status, message } = await this.info();
    this.script.failed.set(this.session, `${status}: ${message}`);
    this.script.waiting.delete(this.session);
  }

  private async ask(name: VerbName, path: string, body: object): Promise<Answer> {
    const verb: Verb = { name, session: this.session, answers: [] };
    this.script.verbs.push(verb);
    const key = this.random.uuid();
    const url = `/v1/sessions/${this.session}/${path}`;
    this.stage.begins(name);
    const answer = await this.client.call('POST', url, body, key);
    verb.answers.push(answer);
    if (answer.status < 300 && this.random.integer(3) === 0)
      verb.answers.push(await this.client.call('POST', url, body, key));
    return answer;
  }

  private async anyCheckpoint(): Promise<string | null> {
    const { checkpoints } = await this.info();
    const taken = (checkpoints as { id: string; status: string }[]).filter(
      ({ status }) => status === 'taken',
    );
    if (taken.length > 0) return this.random.pick(taken).id;
    await this.ask('checkpoint', 'checkpoints', { name: 'first' });
    return null;
  }

  private async info() {
    return (await this.client.call('GET', `/v1/sessions/${this.session}`)).json;
  }

  /** Until nothing is under way. */
  private async settled(): Promise<void> {
    for (;;) {
      const { status, operation, checkpoints } = await this.info();
      const asked = checkpoints.some((each: { status: string }) => each.status === 'requested');
      if (operation === null && !asked && status !== 'starting') return;
      this.script.waiting.set(
        this.session,
        `until it is settled: ${status}, ${operation}${asked ? ', a checkpoint is asked for' : ''}`,
      );
      await pause(30);
    }
  }

  /** Without waiting for it, what comes next meets a tree that is being written. */
  private async write(isAwaited: boolean): Promise<void> {
    await this.written();
    const version = 1 + this.random.integer(2 ** 31 - 1);
    this.writing = await this.issue(treeLine(version), (id) => this.script.writes.set(id, version));
    if (isAwaited) await this.written();
  }

  private async written(): Promise<void> {
    if (this.writing) await this.ended(this.writing);
    this.writing = null;
  }

  /** Until one look has come to its end: a session that rests is woken by it. */
  private async look(): Promise<void> {
    await this.written();
    for (;;) {
      const exec = await this.issue(LOOK, (id) => this.script.looks.set(id, this.session));
      const exit = exec && (await this.ended(exec));
      if (exit?.kind === 'exited' && exit.code === 0) return;
      // A checkpoint of elsewhere is not taken by itself: that it may is for somebody to say.
      if (exit?.kind === 'not_started' && this.stage.providers.length > 1) await this.rehydrate();
      await pause(100);
    }
  }

  /** Null when it was refused. */
  private async issue(command: string, note: (execId: string) => void): Promise<string | null> {
    const path = `/v1/sessions/${this.session}/execs`;
    this.script.waiting.set(this.session, `for ${command.slice(0, 20)}`);
    const { status, json } = await this.client.call('POST', path, { command }, this.random.uuid());
    if (status < 300) {
      note(json.id);
      return json.id;
    }
    if (json?.code === 'session_ended') throw new SessionEnded(`${this.session} has ended`);
    return null;
  }

  private async ended(execId: string) {
    const path = `/v1/sessions/${this.session}/execs/${execId}/wait?wait=5s`;
    for (;;) {
      const { json } = await this.client.call('GET', path);
      if (json?.exit) return json.exit;
      // What stands still ends no more by itself.
      const { status, operation } = await this.info();
      if (status === 'suspended' && operation === null) await this.ask('resume', 'resume', {});
      this.script.waiting.set(this.session, `for ${execId}, which is ${json?.status}`);
    }
  }
}
