import { Sandbox } from '@cloudflare/sandbox';
import { hasCheckpoint, restoreCheckpoint, takeCheckpoint } from './checkpoints';
import { AnotherContainer, ENTRY_HEADERS, ENTRY_PORT, EntryClient } from './entry-client';
import type { Env } from './env';
import type { ContainerHandle, ObjectState } from './platform';
import {
  type Answer,
  answer,
  type CheckpointTaken,
  type CreateBody,
  type Found,
  type Limits,
  type Refused,
  refuse,
  type SandboxName,
  STATUS,
} from './wire';

/** What the object remembers of its sandbox, across evictions and deploys. */
interface SandboxRecord {
  readonly name: SandboxName;
  readonly limits: Limits;
  /** Who may open pipes; everybody else is fenced. */
  readonly runner: string;
  readonly token: string;
  /** Of the container that it was launched in; null until then. */
  readonly boot: string | null;
  /** The checkpoint that was taken of it because nobody else was there to take one. */
  readonly savedTo: string | null;
  /** Set once, when it is known not to exist any more. */
  readonly goneBecause: string | null;
}

interface Live {
  readonly record: SandboxRecord;
  readonly boot: string;
  readonly entry: EntryClient;
}

/** How the Worker in front says which sandbox it means. */
export const NAME_HEADER = 'x-vmux-name';
const recordKey = 'vmux:sandbox';
const statusWithinMs = 5_000;
/** As long as Cloudflare may need to place a container and to pull its image. */
const placedWithinMs = 60_000;
const listensWithinMs = 60_000;

/**
 * One sandbox. The base class would start a lost container again, empty, on the next use of it; nothing
 * here does: a container is started by `create` alone, and whatever answers in its place is not the sandbox.
 */
export class RunnerSandbox extends Sandbox<Env> {
  private queue: Promise<unknown> = Promise.resolve();
  private isCreating = false;
  private isClosing = false;
  private runnersSeen = 0;

  constructor(ctx: ObjectState, env: Env) {
    super(ctx, env);
    this.sleepAfter = env.VMUX_SLEEP_AFTER || '10m';
  }

  async createSandbox(name: SandboxName, body: CreateBody, runner: string): Promise<Answer<null>> {
    return this.alone(async () => {
      if (await this.record()) return refuse('exists', 'the sandbox exists already');
      const { restoreFrom, limits } = body;
      const bucket = this.env.BACKUP_BUCKET;
      if (restoreFrom !== null && !(bucket && (await hasCheckpoint(bucket, restoreFrom))))
        return refuse('invalid', `there is no checkpoint ${restoreFrom} in this Worker’s bucket`);
      const token = crypto.randomUUID();
      const nothing = { boot: null, savedTo: null, goneBecause: null };
      const begun = { name, limits, runner, token, ...nothing };
      this.isCreating = true;
      try {
        // Whatever runs here without a record is nobody's.
        if (this.handle.running) await this.destroy();
        await this.remember(begun);
        await this.startAndWaitForPorts({
          ports: [ENTRY_PORT],
          startOptions: { envVars: { VMUX_ENTRY_TOKEN: token }, enableInternet: body.egress },
          cancellationOptions: {
            instanceGetTimeoutMS: placedWithinMs,
            portReadyTimeoutMS: listensWithinMs,
            waitInterval: 200,
          },
        });
        const entry = new EntryClient(this.handle, token);
        const boot = await entry.launch({ name, limits });
        if (restoreFrom !== null && bucket)
          await restoreCheckpoint(bucket, entry, boot, restoreFrom);
        await this.remember({ ...begun, boot });
        // The base class takes its alarms back when one comes while nothing runs yet, and sets none once the
        // container runs: without one nobody would ever put it to sleep.
        await this.scheduleNextAlarm();
        return answer(null);
      } catch (fault) {
        await this.destroy();
        await this.ctx.storage.delete(recordKey);
        return refuse('unavailable', `the container did not come up (${messageOf(fault)})`);
      } finally {
        this.isCreating = false;
      }
    });
  }

  /** Never starts anything: storage, then whether a container runs, then whether it is the same one. */
  async probe(name: SandboxName): Promise<Found> {
    const live = await this.live(name);
    if (live === 'creating') return { state: 'running' };
    if ('code' in live) return { state: 'gone', evidence: live.message };
    try {
      const { boot } = await live.entry.status(statusWithinMs);
      if (boot !== live.boot) throw new AnotherContainer();
    } catch (fault) {
      // Unreachable is not lost.
      if (!(fault instanceof AnotherContainer) && this.handle.running) return { state: 'running' };
      return { state: 'gone', evidence: (await this.lose(live.record, fault)).message };
    }
    return { state: 'running' };
  }

  async adopt(name: SandboxName, runner: string): Promise<Answer<null>> {
    return this.alone(() =>
      this.within(name, null, async ({ record, boot, entry }) => {
        await this.remember({ ...record, runner });
        await entry.fence(boot, runner);
        return answer(null);
      }),
    );
  }

  async checkpoint(name: SandboxName, runner: string): Promise<Answer<CheckpointTaken>> {
    const bucket = this.env.BACKUP_BUCKET;
    if (!bucket) return refuse('unsupported', 'this Worker has no bucket for checkpoints');
    return this.alone(() =>
      this.within(name, runner, async ({ boot, entry }) =>
        answer(await takeCheckpoint(bucket, entry, boot, name)),
      ),
    );
  }

  /** Destroying twice is destroying. A runner that was relieved of the sandbox destroys nothing. */
  async destroySandbox(name: SandboxName, runner: string | null): Promise<Answer<boolean>> {
    return this.alone(async () => {
      const record = await this.record();
      if (record && (!sameName(record.name, name) || (runner !== null && record.runner !== runner)))
        return answer(false);
      await this.destroy();
      await this.ctx.storage.delete(recordKey);
      return answer(true);
    });
  }

  /** Whether anything runs inside or anybody is connected. */
  async isInUse(): Promise<boolean> {
    const record = await this.record();
    if (!record || !this.handle.running) return false;
    const status = await new EntryClient(this.handle, record.token).status(statusWithinMs);
    return status.pipes > 0 || status.runningExecs > 0;
  }

  /** Byte pipes and ports, as the Worker in front asks for them: it has proved who asks. */
  override async fetch(request: Request): Promise<Response> {
    const { pathname, search } = new URL(request.url);
    const name = nameFrom(request.headers.get(NAME_HEADER) ?? '');
    const runner = request.headers.get(ENTRY_HEADERS.runner) ?? '';
    const path = `${pathname}${search}`;
    const refusedOr = await this.within(name, runner, async ({ record, boot, entry }) => {
      this.runnersSeen += 1;
      this.renewActivityTimeout();
      const response = await entry.forward(boot, path, request);
      if (response.status === 410 || response.status === 401)
        return this.lose(record, new AnotherContainer());
      return answer(response);
    });
    if (refusedOr.ok) return refusedOr.value;
    const { code, message } = refusedOr;
    return Response.json({ code, message }, { status: STATUS[code] });
  }

  /** The base class greets a server of the vendor's that this image does not run. */
  override async onStart(): Promise<void> {}

  /** Kept awake by what runs inside or by a connected runner; otherwise saved and put to sleep. */
  override async onActivityExpired(): Promise<void> {
    if (await this.isInUse()) this.renewActivityTimeout();
    else await this.alone(() => this.sleep());
  }

  /** The base class lives by its alarms, which come every three minutes or more often. */
  override async alarm(...args: Parameters<Sandbox<Env>['alarm']>): Promise<void> {
    try {
      await this.saveBeforeEviction();
    } catch (fault) {
      // The next alarm tries again.
      console.error(`a sandbox cannot be saved before it is evicted: ${messageOf(fault)}`);
    }
    await super.alarm(...args);
  }

  /** A connected runner stores the session itself. */
  private async saveBeforeEviction(): Promise<void> {
    const bucket = this.env.BACKUP_BUCKET;
    const seen = await this.record();
    if (!bucket || !seen?.boot || seen.savedTo !== null || !this.handle.running) return;
    const entry = new EntryClient(this.handle, seen.token);
    const { isEvicting, pipes } = await entry.status(statusWithinMs);
    if (!isEvicting || pipes > 0) return;
    await this.alone(async () => {
      const record = await this.record();
      if (!record?.boot || record.goneBecause !== null) return;
      const { ref } = await takeCheckpoint(bucket, entry, record.boot, record.name);
      await this.remember({ ...record, savedTo: ref });
    });
  }

  private async sleep(): Promise<void> {
    const record = await this.record();
    if (!record?.boot || record.goneBecause !== null) return this.destroy();
    const { token, boot, name } = record;
    const bucket = this.env.BACKUP_BUCKET;
    const entry = new EntryClient(this.handle, token);
    const before = this.runnersSeen;
    const saved = bucket ? await takeCheckpoint(bucket, entry, boot, name) : undefined;
    this.isClosing = true;
    try {
      // Somebody may have come while it was saved, and have left; from here on nobody comes.
      if (this.runnersSeen !== before || (await this.isInUse())) return this.renewActivityTimeout();
      const where = saved ? `its files are in ${saved.ref}` : 'its files were not saved';
      const goneBecause = `nobody used it and it was put to sleep; ${where}`;
      await this.remember({ ...record, goneBecause });
      await this.destroy();
    } finally {
      this.isClosing = false;
    }
  }

  private get handle(): ContainerHandle {
    const { container } = this.ctx;
    if (!container) throw new Error('this class has no container: see wrangler.jsonc');
    return container;
  }

  private record(): Promise<SandboxRecord | undefined> {
    return this.ctx.storage.get<SandboxRecord>(recordKey);
  }

  private remember(record: SandboxRecord): Promise<void> {
    return this.ctx.storage.put(recordKey, record);
  }

  private async live(name: SandboxName): Promise<Live | 'creating' | Refused> {
    const record = await this.record();
    if (!record || !sameName(record.name, name))
      return refuse('sandbox_lost', 'there is no such sandbox');
    if (record.goneBecause !== null) return refuse('sandbox_lost', record.goneBecause);
    if (this.isCreating) return 'creating';
    if (record.boot === null) return refuse('sandbox_lost', 'its creation was interrupted');
    if (!this.handle.running) return refuse('sandbox_lost', await this.howItEnded(record));
    return { record, boot: record.boot, entry: new EntryClient(this.handle, record.token) };
  }

  private async howItEnded({ savedTo }: SandboxRecord): Promise<string> {
    const state = await this.getState();
    const how =
      state.status === 'stopped_with_code'
        ? `its container ended with exit code ${state.exitCode ?? 'unknown'}`
        : 'its container does not run any more';
    return savedTo === null ? how : `${how}; its files of shortly before are in ${savedTo}`;
  }

  /** Acts in the sandbox that is meant, for the runner that has it; a null runner is any. */
  private async within<T>(
    name: SandboxName,
    runner: string | null,
    act: (live: Live) => Promise<Answer<T>>,
  ): Promise<Answer<T>> {
    const live = await this.live(name);
    if (live === 'creating') return refuse('unavailable', 'the sandbox is being created');
    if (this.isClosing) return refuse('unavailable', 'the sandbox is being put to sleep');
    if ('code' in live) return live;
    const { record } = live;
    if (runner !== null && record.runner !== runner)
      return refuse('fenced', `runner ${record.runner} has taken this sandbox over`);
    try {
      return await act(live);
    } catch (fault) {
      if (fault instanceof AnotherContainer || !this.handle.running)
        return this.lose(record, fault);
      return refuse('unavailable', messageOf(fault));
    }
  }

  /** For good: the container that answers instead, if any, is ended. */
  private async lose(record: SandboxRecord, fault: unknown): Promise<Refused> {
    const because = this.handle.running ? messageOf(fault) : await this.howItEnded(record);
    await this.remember({ ...record, goneBecause: because });
    if (this.handle.running) await this.destroy();
    return refuse('sandbox_lost', because);
  }

  /** One change at a time. */
  private alone<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.queue.then(act, act);
    this.queue = mine.catch(() => undefined);
    this.ctx.waitUntil(this.queue);
    return mine;
  }
}

export const nameText = ({ sessionId, epoch, instance }: SandboxName): string =>
  `${sessionId}/${epoch}/${instance}`;

function nameFrom(text: string): SandboxName {
  const [sessionId = '', epoch = '', instance = ''] = text.split('/');
  return { sessionId, epoch: Number(epoch), instance };
}

const sameName = (one: SandboxName, other: SandboxName): boolean =>
  one.sessionId === other.sessionId && one.epoch === other.epoch && one.instance === other.instance;

const messageOf = (fault: unknown): string =>
  fault instanceof Error ? fault.message : String(fault);
