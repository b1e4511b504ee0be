import type { SeededRandom } from '@vmux/testing';
import { ApiClient } from '../support/api-client';
import type { PatientClient } from './client';
import { SILENCE_MS } from './followers';

export interface Seen {
  readonly revision: number;
  readonly position: string;
  readonly type: string;
}

const MOST_EVENTS = 300;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** A client that follows what happens to a session, leaves at random and comes back after the last id it saw. */
export class HistoryWatch {
  readonly seen: Seen[] = [];
  drops = 0;
  private readonly over = new AbortController();
  private readonly watching: Promise<void>;

  constructor(
    private readonly client: PatientClient,
    private readonly random: SeededRandom,
    readonly session: string,
  ) {
    this.watching = this.watch();
  }

  /** What it saw, once it has seen so many or the time is up. */
  async end(count: number, withinMs: number): Promise<readonly Seen[]> {
    for (const began = Date.now(); this.seen.length < count; await pause(50))
      if (Date.now() - began > withinMs) break;
    this.over.abort();
    await this.watching;
    return this.seen;
  }

  private async watch(): Promise<void> {
    const { signal } = this.over;
    while (!signal.aborted) {
      await this.once(1 + this.random.integer(MOST_EVENTS));
      this.drops += 1;
      await pause(50);
    }
  }

  private async once(most: number): Promise<void> {
    const { client, session, seen } = this;
    const leave = new AbortController();
    const silence = setTimeout(() => leave.abort(new Error('silence')), SILENCE_MS);
    const last = seen.at(-1);
    const headers: Record<string, string> = last ? { 'last-event-id': String(last.revision) } : {};
    client.requests += 1;
    try {
      const api = new ApiClient(client.anyGateway(), client.key);
      const signal = AbortSignal.any([leave.signal, this.over.signal]);
      const path = `/v1/sessions/${session}/events?follow=true`;
      let left = most;
      for await (const { event, id, data } of api.events(path, { headers, signal })) {
        silence.refresh();
        if (event !== 'fact') continue;
        seen.push({ revision: Number(id), position: data.position, type: data.type });
        left -= 1;
        if (left === 0) return;
      }
    } catch {
      // A process was harmed, or it said nothing for long: it comes back.
    } finally {
      clearTimeout(silence);
    }
  }
}
