/**
 * The event store through its port, beside direct SQLite and JetStream, interleaved in one run. Figures
 * of a shared machine wander by a factor; the ratios, each taken within its own round, do not.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { cpus, loadavg } from 'node:os';
import { connectEventStore, type EventStore } from '@vmux/event-store';
import {
  type EventStoreServer,
  releaseAll,
  startEventStore,
  startNats,
  temporaryDirectory,
} from '@vmux/testing';
import { connect } from 'nats';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';
import { jetStreamRival, portRival, type Rival, SqliteRival } from './rivals';

const ROUNDS = 7;
const APPEND_MS = 700;
const WARM_UP_MS = 2_000;
const READ_EVENTS = 100_000;
const LATENCIES = 1_000;

type Name = 'port' | 'sqlite' | 'jetstream';
type Rates = Record<Name, number[]> & {
  /** Microseconds of CPU per append through the port. */
  readonly ownCpu: number[];
  readonly serverCpu: number[];
};

async function appendRates(
  rivals: Record<Name, Rival>,
  server: EventStoreServer,
  bytes: number,
): Promise<Rates> {
  const data = randomBytes(bytes);
  const rates: Rates = { port: [], sqlite: [], jetstream: [], ownCpu: [], serverCpu: [] };
  const names: Name[] = ['port', 'sqlite', 'jetstream'];
  for (const name of names) await rivals[name].append(data, WARM_UP_MS);
  for (let round = 0; round < ROUNDS; round++) {
    for (const name of names) {
      const serverBefore = await serverCpuSeconds(server);
      const [ownBefore, started] = [process.cpuUsage(), performance.now()];
      const count = await rivals[name].append(data, APPEND_MS);
      rates[name].push((count / (performance.now() - started)) * 1000);
      if (name !== 'port') continue;
      const { user, system } = process.cpuUsage(ownBefore);
      rates.ownCpu.push((user + system) / count);
      rates.serverCpu.push(((await serverCpuSeconds(server)) - serverBefore) * (1e6 / count));
    }
  }
  return rates;
}

const ratio = (rates: Rates, rival: Name): number =>
  median(rates.port.map((rate, round) => rate / (rates[rival][round] ?? Number.NaN)));

const cpuFigure = ({ ownCpu, serverCpu }: Rates): string =>
  `${figure(median(ownCpu))} + ${figure(median(serverCpu))}`;

async function serverCpuSeconds({ httpPort }: EventStoreServer): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${httpPort}/metrics`)).text();
  const seconds = /^(?:\w+_)?process_cpu_seconds_total (\S+)/m.exec(metrics)?.[1];
  if (seconds === undefined) throw new Error('the server does not tell its CPU time');
  return Number(seconds);
}

async function readRates(store: EventStore, sqlite: SqliteRival) {
  const data = randomBytes(256);
  const stream = `bench-read-${randomUUID()}`;
  for (let at = 0; at < READ_EVENTS; at += 1000) {
    const batch = Array.from({ length: 1000 }, () => ({
      id: randomUUID(),
      type: 'Measured',
      data,
    }));
    await store.append(stream, at === 0 ? 'none' : at - 1, batch);
  }
  const directStream = 1_000_000;
  sqlite.fill(directStream, READ_EVENTS, data);
  const rates = { port: [] as number[], sqlite: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    let started = performance.now();
    let count = 0;
    for await (const _ of store.read(stream)) count++;
    if (count !== READ_EVENTS) throw new Error(`read ${count} events of ${READ_EVENTS}`);
    rates.port.push((count / (performance.now() - started)) * 1000);
    started = performance.now();
    rates.sqlite.push((sqlite.read(directStream) / (performance.now() - started)) * 1000);
  }
  return rates;
}

/** Milliseconds from the call of append to the event's arrival at a subscriber, one at a time. */
async function latencies(store: EventStore): Promise<number[]> {
  const stream = `latency-${randomUUID()}`;
  const stopping = new AbortController();
  const measured: number[] = [];
  const subscription = store.subscribe({ prefixes: ['latency-'] }, stopping.signal);
  const items = subscription[Symbol.asyncIterator]();
  const next = async (kind: string) => {
    for (;;) {
      const { value, done } = await items.next();
      if (done) throw new Error('the subscription ended');
      if (value.kind === kind) return;
    }
  };
  await next('caughtUp');
  const data = randomBytes(256);
  for (let n = 0; n < LATENCIES; n++) {
    const started = performance.now();
    const arrived = next('event').then(() => measured.push(performance.now() - started));
    const event = { id: randomUUID(), type: 'Measured', data };
    await store.append(stream, n === 0 ? 'none' : n - 1, [event]);
    await arrived;
  }
  stopping.abort();
  return measured;
}

async function main(): Promise<void> {
  const server = await startEventStore();
  const store = connectEventStore({ url: server.url });
  const nats = await startNats({ jetstream: true });
  const connection = await connect({ servers: nats.url });
  const sqlite = new SqliteRival(temporaryDirectory('bench-sqlite'));
  const jetstream = await jetStreamRival(connection);
  const small = await appendRates({ port: portRival(store), sqlite, jetstream }, server, 256);
  const large = await appendRates({ port: portRival(store), sqlite, jetstream }, server, 16 * 1024);
  const reads = await readRates(store, sqlite);
  const delays = await latencies(store);
  await store.close();
  await connection.close();
  sqlite.close();
  await releaseAll();

  const readRatio = median(reads.port.map((rate, n) => rate / (reads.sqlite[n] ?? Number.NaN)));
  const appendRow = (title: string, rates: Rates) => [
    title,
    figure(median(rates.port)),
    figure(median(rates.sqlite)),
    figure(median(rates.jetstream)),
    figure(ratio(rates, 'sqlite')),
    figure(ratio(rates, 'jetstream')),
  ];
  const load = loadavg().map((value) => value.toFixed(1));
  console.log(
    `medians of ${ROUNDS} interleaved rounds, ratios within each round; ` +
      `load ${load.join(' ')} on ${cpus().length} cores`,
  );
  printTable(
    ['', 'through the port', 'SQLite (FULL)', 'JetStream (no fsync)', '÷ SQLite', '÷ JetStream'],
    [
      appendRow('appends/s, 256 B, 16 in flight', small),
      appendRow('appends/s, 16 KiB, 16 in flight', large),
      [
        'events/s read, 256 B',
        figure(median(reads.port)),
        figure(median(reads.sqlite)),
        '',
        figure(readRatio),
      ],
      ['append → subscriber, p50 ms', figure(median(delays))],
      ['append → subscriber, p99 ms', figure(quantile(delays, 0.99))],
      ['CPU per append of 256 B, client + server, µs', cpuFigure(small)],
      ['CPU per append of 16 KiB, client + server, µs', cpuFigure(large)],
    ],
  );
  if (wantsJson()) {
    printJson({
      append256_vs_sqlite: ratio(small, 'sqlite'),
      append16k_vs_sqlite: ratio(large, 'sqlite'),
      append256_vs_jetstream: ratio(small, 'jetstream'),
      append16k_vs_jetstream: ratio(large, 'jetstream'),
      append256_per_s: median(small.port),
      read_events_per_s: median(reads.port),
      read_vs_sqlite: readRatio,
      append_to_subscriber_ms_p50: median(delays),
      append_to_subscriber_ms_p99: quantile(delays, 0.99),
      append256_cpu_us: median(small.ownCpu) + median(small.serverCpu),
      append16k_cpu_us: median(large.ownCpu) + median(large.serverCpu),
    });
  }
}

main().catch((fault) => {
  console.error(fault);
  process.exitCode = 1;
});
