import { createHash } from 'node:crypto';
import type { EventStore } from '@vmux/event-store';
import {
  deriveCheckpointId,
  keysStream,
  logStream,
  type Order,
  orderIdOf,
  Refusal,
  type SealedOrder,
  type SystemCommand,
  scopedKey,
  sessionIdOf,
  sessionStream,
  snapshotStream,
  unsealOrder,
  viewStream,
} from '@vmux/events';
import type { KeyStore } from '@vmux/key-store';
import type { Owed, OwedFork } from '../domain/react';
import {
  type Existing,
  exists,
  isLiving,
  type Living,
  REASSIGN_AFTER_MS,
  type Session,
} from '../domain/state';
import type { Changes } from './changes';
import type { CommandHandler } from './commands';
import type { Log } from './log';
import type { Hands } from './orders';
import type { Placing } from './placing';
import type { Runners } from './runners';
import { lastOf, truncateStream } from './streams';

const LOOK_AGAIN_MS = 1000;
const AFTER_REFUSAL_MS = 15_000;

/** Carries out what Orders finds owed. */
export class Errands implements Hands {
  constructor(
    private readonly changes: Changes,
    private readonly commands: CommandHandler,
    private readonly keys: KeyStore,
    private readonly runners: Runners,
    private readonly placing: Placing,
    private readonly store: EventStore,
    private readonly publish: (order: Order) => void,
    private readonly log: Log,
  ) {}

  async send(order: SealedOrder): Promise<Order> {
    const opened = new Map<object, Readonly<Record<string, string>>>();
    if ('env' in order.data)
      for (const env of order.data.env)
        opened.set(env, await this.keys.unseal(order.sessionId, env));
    const clear = unsealOrder(order, (env) => opened.get(env) ?? {});
    this.publish(clear);
    return clear;
  }

  async ask(session: Session, owed: Owed, now: number): Promise<number | null> {
    if (!exists(session)) return null;
    const again: (number | null)[] = [];
    if (owed.deadlines.length > 0) again.push(now + LOOK_AGAIN_MS);
    for (const { kind, execId, at } of owed.deadlines) {
      const checkpointId = deriveCheckpointId(session.sessionId, kind, String(at));
      await this.fire(session, now, { type: 'FireDeadline', data: { kind, execId, checkpointId } });
    }
    if (owed.place) {
      if (isLiving(session) && this.placing.isPossible(session))
        await this.fire(session, now, { type: 'PlaceSandbox', data: {} });
      again.push(now + LOOK_AGAIN_MS);
    }
    const waits = await Promise.all(owed.forks.map((fork) => this.fork(session, fork, now)));
    again.push(...waits.map((waitMs) => waitMs && now + waitMs));
    if (isLiving(session))
      again.push(await this.handedOver(session, now), await this.reachable(session, now));
    const times = again.filter((time) => time !== null);
    return times.length === 0 ? null : Math.min(...times);
  }

  async erase({ sessionId, revision }: Session & { status: 'deleted' }): Promise<void> {
    await this.keys.destroy(sessionId);
    this.forget(sessionId);
    await truncateStream(this.store, sessionStream(sessionId), revision);
    for (const streamOf of [logStream, snapshotStream, keysStream, viewStream]) {
      const stream = streamOf(sessionId);
      const last = await lastOf(this.store, stream);
      if (last) await truncateStream(this.store, stream, last.revision + 1);
    }
    this.log.info({ sessionId }, 'a deleted session was erased');
  }

  /** A hint: what a runner keeps for a session beside its sandbox is a copy, which it may drop at any time. */
  private forget(sessionId: string): void {
    for (const runnerId of this.runners.ids) {
      const orderId = orderIdOf('ForgetSession', sessionId, 1, null);
      const to = { orderId, runnerId, sessionId, epoch: 1, instance: null };
      this.publish({ type: 'ForgetSession', ...to, data: {} });
    }
  }

  /** Whoever closed the log was on the way to record the loss and did not get there. */
  giveUp(sessionId: string, epoch: number): void {
    const evidence = { kind: 'log_closed' } as const;
    const lost = { type: 'DeclareLost', data: { epoch, evidence } } as const;
    this.fire({ sessionId }, Date.now(), lost).catch((fault: unknown) =>
      this.log.warn({ sessionId, epoch, fault }, 'a loss could not be recorded yet'),
    );
  }

  /** A sandbox in the reach of other runners does not wait for one that is silent. */
  private async handedOver({ sessionId, current }: Living, now: number): Promise<number | null> {
    if (current?.pool === undefined) return null;
    const since = this.runners.unreachableSince(current.runnerId);
    if (since === null) return now + REASSIGN_AFTER_MS;
    if (now - since < REASSIGN_AFTER_MS) return since + REASSIGN_AFTER_MS;
    const { epoch, instance } = current;
    const to = this.runners.successorOf(current);
    if (to) {
      const data = { epoch, instance, to, since };
      await this.fire({ sessionId }, now, { type: 'ReassignRunner', data });
    }
    return now + LOOK_AGAIN_MS;
  }

  /** By its policy a sandbox whose runner is silent for long counts as lost. */
  private async reachable(session: Living, now: number): Promise<number | null> {
    const { lostAfterMs } = session.spec.policy;
    const sandboxes = [session.current, session.pending].filter((each) => each !== null);
    if (lostAfterMs === null || sandboxes.length === 0) return null;
    let next = now + lostAfterMs;
    for (const { runnerId, epoch } of sandboxes) {
      const since = this.runners.unreachableSince(runnerId);
      if (since === null) continue;
      next = Math.min(next, Math.max(since + lostAfterMs, now + LOOK_AGAIN_MS));
      if (now - since < lostAfterMs) continue;
      const evidence = { kind: 'unreachable', since } as const;
      await this.fire(session, now, { type: 'DeclareLost', data: { epoch, evidence } });
    }
    return next;
  }

  /** Null once the child exists and the parent's history says so; otherwise how long to wait. */
  private async fork(parent: Existing, fork: OwedFork, now: number): Promise<number | null> {
    const { owner, sessionId } = parent;
    const { forkId, index, name, provider, checkpoint } = fork;
    const key = scopedKey(owner, `fork ${sessionId} ${forkId}`, String(index));
    const childId = sessionIdOf(name, owner, key, 0);
    try {
      const { env } = parent.spec;
      const sealed = env && (await this.keys.seal(childId, await this.keys.unseal(sessionId, env)));
      const created = await this.commands.handle({
        type: 'CreateSession',
        sessionId: childId,
        key,
        digest: createHash('sha256').update(`${forkId} ${index}`).digest('hex'),
        owner,
        principal: 'system',
        correlationId: `fork.${forkId}`,
        traceparent: null,
        at: now,
        placement: null,
        data: {
          name,
          attempt: 0,
          provider,
          spec: { ...parent.spec, env: sealed },
          lineage: { parent: sessionId, checkpoint, forkId },
        },
      });
      await this.fire(parent, now, {
        type: 'RecordFork',
        data: { forkId, index, child: created.sessionId },
      });
      return null;
    } catch (fault) {
      this.log.warn({ sessionId, forkId, index, fault }, 'a fork could not be created yet');
      return fault instanceof Refusal ? AFTER_REFUSAL_MS : LOOK_AGAIN_MS;
    }
  }

  /** A refusal means that it is no longer owed, or not yet. */
  private async fire(
    { sessionId }: { readonly sessionId: string },
    at: number,
    command: Pick<SystemCommand, 'type' | 'data'>,
  ): Promise<void> {
    try {
      await this.changes.command({
        ...command,
        sessionId,
        principal: 'system',
        correlationId: `${command.type}.${sessionId}`,
        traceparent: null,
        at,
        placement: null,
      } as SystemCommand);
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      this.log.debug({ sessionId, type: command.type, code: fault.code }, fault.message);
    }
  }
}
