/**
 * One exec of /bin/true through everything (HTTP → durable event → sandbox → durable exit → HTTP) beside
 * `docker exec` and a bare spawn; a new session's first output beside `docker run`; output carried to the
 * log and read back beside `docker logs -f`. Interleaved in one run: read the ratios.
 */
import { spawn } from 'node:child_process';
import { loadavg } from 'node:os';
import { noDockerEngineBecause, releaseAll, seededRandom, startDockerEngine } from '@vmux/testing';
import Docker from 'dockerode';
import { NsDriver } from '../apps/runner-local/src/drivers/ns-driver';
import { PatientClient } from '../test/chaos/client';
import { assemble, type Cast } from '../test/support/cast';
import { figure, median, printJson, printTable, quantile, wantsJson } from './report';

const EXECS = 60;
const CREATES = 10;
const LOG_ROUNDS = 3;
const LOG_MIB = 32;
const HISTORY = 1_000;

type Timed = (() => Promise<unknown>) | null;

async function main(): Promise<void> {
  const noDocker = noDockerEngineBecause();
  const cast = await assemble();
  try {
    const engine = noDocker ? null : await startDockerEngine();
    const docker =
      engine &&
      new Rival(new Docker({ socketPath: engine.socketPath }), engine.image, engine.socketPath);
    const vmux = new Subject(
      new PatientClient(cast.gateways.slice(0, 1), cast.apiKey(), seededRandom(1)),
    );
    const session = await vmux.created();
    await docker?.start();

    const execs = await interleaved(EXECS, {
      vmux: () => vmux.exec(session),
      'docker exec, API': docker && (() => docker.exec()),
      'docker exec, CLI': docker && (() => docker.execByCli()),
      spawn: () => ended(spawn('/bin/true')),
    });
    const creates = await interleaved(CREATES, {
      vmux: () => vmux.firstOutput(),
      'docker run': docker && (() => docker.run()),
    });
    const logs = await interleaved(LOG_ROUNDS, {
      vmux: () => vmux.output(session, LOG_MIB),
      'docker logs -f': docker && (() => docker.output(LOG_MIB)),
    });
    const early = execs.vmux ?? [];
    for (let at = 0; at < HISTORY / 16; at++) {
      await Promise.all(Array.from({ length: 16 }, () => vmux.exec(session)));
    }
    const late = (await interleaved(EXECS, { vmux: () => vmux.exec(session) })).vmux ?? [];

    printTable(
      ['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'],
      [
        ...rows('exec /bin/true', execs),
        [
          'exec /bin/true: vmux, a thousand execs later',
          ms(median(late)),
          ms(quantile(late, 0.99)),
          '–',
        ],
        ...rows('create → first output', creates),
        ...rows(`${LOG_MIB} MiB of output, written → read`, logs),
      ],
    );
    console.log(
      `load ${figure(loadavg()[0] ?? 0)}${noDocker ? `; no docker figures: ${noDocker}` : ''}`,
    );
    if (docker?.logsLost)
      console.log(
        `docker logs -f left out ${figure(docker.logsLost / 1024 / 1024)} MiB; vmux is checked to the byte`,
      );
    if (wantsJson()) {
      printJson({
        exec_ms_p50: median(early),
        exec_vs_spawn: ratio(execs, 'spawn'),
        exec_growth_over_1k_execs: median(late) / median(early),
        log_mib_per_s: (LOG_MIB * 1000) / median(logs.vmux ?? []),
        ...(docker
          ? {
              exec_vs_docker: ratio(execs, 'docker exec, API'),
              create_vs_docker: ratio(creates, 'docker run'),
              logs_vs_docker: 1 / ratio(logs, 'docker logs -f'),
            }
          : {}),
      });
    }
    await engine?.stop();
  } finally {
    await cleanUp(cast);
  }
}

/** vmux as a client sees it. */
class Subject {
  constructor(private readonly client: PatientClient) {}

  async created(): Promise<string> {
    const answer = await this.client.call('POST', '/v1/sessions', { name: 'bench' });
    if (answer.status !== 201) throw new Error(`create: ${JSON.stringify(answer.json)}`);
    return answer.json.id;
  }

  async exec(session: string): Promise<void> {
    await this.run(session, { argv: ['/bin/true'] });
  }

  async firstOutput(): Promise<void> {
    const session = await this.created();
    const { output } = await this.run(session, { argv: ['/bin/echo', 'here'] });
    if (output.stdout.text !== 'here\n') throw new Error('no output');
    await this.client.call('POST', `/v1/sessions/${session}/stop`, {});
  }

  async output(session: string, mib: number): Promise<void> {
    const path = `/v1/sessions/${session}/execs`;
    const { json } = await this.client.call('POST', path, { command: writing(mib) });
    const { bytes } = await this.client.read(
      `/v1/sessions/${session}/logs?exec=${json.id}&stream=stdout&follow=true`,
    );
    if (bytes.length !== mib * 1024 * 1024) throw new Error(`${bytes.length} bytes came back`);
  }

  private async run(session: string, body: object) {
    const answer = await this.client.call('POST', `/v1/sessions/${session}/execs?wait=60s`, body);
    if (answer.json.exit?.code !== 0) throw new Error(`exec: ${JSON.stringify(answer.json)}`);
    return answer.json;
  }
}

/** What one would use instead. */
class Rival {
  private container: Docker.Container | undefined;
  /** A follower of a container that ends may be cut off before the last byte. */
  logsLost = 0;

  constructor(
    private readonly docker: Docker,
    private readonly image: string,
    private readonly socketPath: string,
  ) {}

  async start(): Promise<void> {
    this.container = await this.docker.createContainer({
      Image: this.image,
      Cmd: ['sleep', '100000'],
    });
    await this.container.start();
  }

  async exec(): Promise<void> {
    if (!this.container) throw new Error('not started');
    const exec = await this.container.exec({ Cmd: ['/bin/true'], AttachStdout: true });
    const stream = await exec.start({ hijack: true, stdin: false });
    stream.resume();
    await new Promise((done) => stream.on('close', done).on('end', done));
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`docker exec ended with ${ExitCode}`);
  }

  execByCli(): Promise<void> {
    return this.cli('exec', this.container?.id ?? '', '/bin/true');
  }

  run(): Promise<void> {
    return this.cli('run', '--rm', this.image, 'echo', 'here');
  }

  async output(mib: number): Promise<void> {
    const container = await this.docker.createContainer({
      Image: this.image,
      Cmd: ['sh', '-c', writing(mib)],
    });
    await container.start();
    const logs = spawn('docker', [
      '--host',
      `unix://${this.socketPath}`,
      'logs',
      '-f',
      container.id,
    ]);
    let bytes = 0;
    logs.stdout.on('data', (piece: Buffer) => {
      bytes += piece.length;
    });
    await ended(logs);
    this.logsLost += mib * 1024 * 1024 - bytes;
    await container.remove({ force: true });
  }

  private cli(...args: string[]): Promise<void> {
    const child = spawn('docker', ['--host', `unix://${this.socketPath}`, ...args]);
    child.stdout.resume();
    child.stderr.resume();
    return ended(child);
  }
}

const writing = (mib: number): string =>
  `yes 'sixty-three bytes of text and the end of its line, over and over' | head -c ${mib}M`;

const ended = (child: ReturnType<typeof spawn>): Promise<void> =>
  new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`ended with ${code}`))));
  });

/** Runs the rivals in turn, so that whatever the machine does meanwhile befalls all of them. */
async function interleaved(
  rounds: number,
  rivals: Record<string, Timed>,
): Promise<Record<string, number[]>> {
  const running = Object.entries(rivals).flatMap(([name, work]) => (work ? [{ name, work }] : []));
  const times: Record<string, number[]> = Object.fromEntries(running.map(({ name }) => [name, []]));
  for (const { work } of running) await work();
  for (let round = 0; round < rounds; round++) {
    for (const { name, work } of running) {
      const started = performance.now();
      await work();
      times[name]?.push(performance.now() - started);
    }
  }
  return times;
}

const ratio = (times: Record<string, number[]>, rival: string): number =>
  median((times.vmux ?? []).map((time, round) => time / (times[rival]?.[round] ?? Number.NaN)));

const ms = (value: number): string => figure(value);

const rows = (title: string, times: Record<string, number[]>): string[][] =>
  Object.entries(times).map(([name, measured]) => [
    `${title}: ${name}`,
    ms(median(measured)),
    ms(quantile(measured, 0.99)),
    name === 'vmux' ? '1' : figure(ratio(times, name)),
  ]);

async function cleanUp(cast: Cast): Promise<void> {
  for (const actor of cast.actors) await actor.kill();
  const driver = new NsDriver(cast.driver);
  for (const { id } of await driver.list()) await driver.destroy(id);
  await driver.close();
  await releaseAll();
}

main().then(
  () => process.exit(0),
  async (error) => {
    console.error(error);
    await releaseAll();
    process.exit(1);
  },
);
