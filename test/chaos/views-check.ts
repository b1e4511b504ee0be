import { isDeepStrictEqual } from 'node:util';
import type { EventStore } from '@vmux/event-store';
import { decode, type Recorded, sessionStream } from '@vmux/events';
import { execJson, sessionJson, summaryJson } from '../../apps/gateway/src/application/present';
import { apply, unborn } from '../../apps/gateway/src/application/session-view';
import { project } from '../../apps/gateway/src/projections/project';
import { type SessionRow, summaryOf } from '../../apps/gateway/src/projections/session-row';
import type { PatientClient } from './client';
import { type History, shortest } from './laws';
import { eventsOf } from './store-reads';

type Fields = Readonly<Record<string, unknown>>;
/** Adds a violation, with the shortest history that shows it. */
export type AddShown = (law: string, what: string, history?: History) => void;

const LAW = '1 the history';
/** What the gateway knows of a session may be one event older than what was read of it a moment before. */
const AGREES_WITHIN_MS = 5_000;
const PAGE = 200;
const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** As JSON has it: undefined members do not survive. */
export const plain = (value: object): Fields => JSON.parse(JSON.stringify(value));

type Event = Recorded & { readonly position: bigint };

/** A fresh replay of a session's history, by the gateway's own folds. */
interface Replayed {
  readonly history: Event[];
  readonly position: bigint;
  readonly listed: Fields | null;
  readonly shown: Fields;
  readonly execs: readonly Fields[];
}

/** What every gateway shows of sessions is what a fresh replay of their histories gives. */
export class ViewsCheck {
  private readonly gateways: readonly PatientClient[];

  constructor(
    client: PatientClient,
    private readonly store: EventStore,
    private readonly sessions: readonly string[],
    private readonly add: AddShown,
  ) {
    this.gateways = client.gateways.map((gateway) => client.only(gateway));
  }

  async check(): Promise<void> {
    for (const gateway of this.gateways) {
      for (const session of this.sessions) await this.checkSession(gateway, session);
      await this.checkNames(gateway);
    }
  }

  private async checkSession(gateway: PatientClient, session: string): Promise<void> {
    for (const began = Date.now(); ; await pause(100)) {
      const replayed = await this.replay(session);
      const [listed, shown] = [
        wrongOf(replayed.listed ?? {}, await listedBy(gateway, session, replayed.position)),
        wrongOf(replayed.shown, await shownBy(gateway, session)),
      ];
      const execs = isDeepStrictEqual(await execsOf(gateway, session), replayed.execs);
      if (listed.length === 0 && shown.length === 0 && execs) return;
      if (Date.now() - began < AGREES_WITHIN_MS) continue;
      const [first] = gateway.gateways;
      if (listed.length > 0)
        this.add(
          LAW,
          `${first} lists ${session} without ${told(replayed.listed ?? {}, listed)}`,
          shortestListing(replayed, listed),
        );
      if (shown.length > 0)
        this.add(LAW, `${first} shows ${session} without ${told(replayed.shown, shown)}`);
      if (!execs) this.add(LAW, `${first} shows other execs of ${session} than its history has`);
      return;
    }
  }

  /** Those that were deleted are not among them. */
  private async checkNames(gateway: PatientClient): Promise<void> {
    const listed = (await pagesOf(gateway, '/v1/sessions', 'sessions')).map(({ id }) => String(id));
    const [is, must] = [[...listed].sort(), [...this.sessions].sort()];
    const [first] = gateway.gateways;
    if (!isDeepStrictEqual(is, must)) this.add(LAW, `${first} lists ${is}; there are ${must}`);
  }

  private async replay(session: string): Promise<Replayed> {
    const view = unborn(session);
    const history: Event[] = [];
    for await (const stored of eventsOf(this.store, sessionStream(session))) {
      view.revision = stored.revision;
      view.position = stored.position;
      const recorded = decode(stored);
      if (!recorded) continue;
      apply(view, recorded, stored.position);
      history.push({ ...recorded, position: stored.position });
    }
    return {
      history,
      position: view.position,
      listed: listingOf(history),
      shown: plain(sessionJson(view)),
      execs: [...view.execs.values()].reverse().map((exec) => plain(execJson(session, exec))),
    };
  }
}

function listingOf(history: readonly Event[]): Fields | null {
  const row = history.reduce<SessionRow | null>(project, null);
  return row && plain(summaryJson(summaryOf(row)));
}

const wrongOf = (expected: Fields, shown: Fields | null): string[] =>
  Object.keys(expected).filter((name) => !isDeepStrictEqual(shown?.[name], expected[name]));

const told = (expected: Fields, names: readonly string[]): string =>
  JSON.stringify(Object.fromEntries(names.map((name) => [name, expected[name]])));

/** As few of the events as lead to the same, where something else was listed. */
function shortestListing({ history, listed }: Replayed, wrong: readonly string[]): History {
  const breach = { law: LAW, what: '' };
  const law = (events: readonly Event[]) => {
    const other = listingOf(events);
    const isSame = wrong.every((name) => isDeepStrictEqual(other?.[name], listed?.[name]));
    return isSame ? [breach] : [];
  };
  return shortest(history, law, breach);
}

/** Lists are eventual: they are asked for as of a position. */
async function listedBy(gateway: PatientClient, session: string, position: bigint) {
  const listed = await pagesOf(gateway, `/v1/sessions?after=${position}`, 'sessions');
  return listed.find(({ id }) => id === session) ?? null;
}

async function shownBy(gateway: PatientClient, session: string): Promise<Fields | null> {
  const { status, json } = await gateway.call('GET', `/v1/sessions/${session}`);
  return status === 200 ? json : null;
}

const execsOf = (gateway: PatientClient, session: string): Promise<readonly Fields[]> =>
  pagesOf(gateway, `/v1/sessions/${session}/execs`, 'execs');

async function pagesOf(gateway: PatientClient, path: string, name: string): Promise<Fields[]> {
  const all: Fields[] = [];
  for (let cursor: string | number | null = null; ; ) {
    const query: string = `${path.includes('?') ? '&' : '?'}limit=${PAGE}`;
    const next = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { status, json } = await gateway.call('GET', `${path}${query}${next}`);
    if (status !== 200) throw new Error(`${path}: ${status} ${JSON.stringify(json)}`);
    all.push(...json[name]);
    cursor = json.cursor ?? null;
    if (cursor === null) return all;
  }
}
