import { releaseAll, type SeededRandom, seededRandom } from '@vmux/testing';
import type { Reply } from '../../../test/support/api-client';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

const SEED = Number(process.env.VMUX_FUZZ_SEED ?? 20_261_118);
const ROUNDS = Number(process.env.VMUX_FUZZ_ROUNDS ?? 40);

let stack: Stack;
let gateway: Gateway;
let session: string;
let exec: string;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack, 'gateway-1', {
    VMUX_REQUESTS_PER_SECOND: '100000',
    VMUX_REQUEST_BURST: '100000',
    VMUX_LIVE_SESSIONS: '100000',
  });
  session = (await gateway.api.post('/v1/sessions', { name: 'fuzzed' })).json.id;
  const ran = await gateway.api.post(`/v1/sessions/${session}/execs?wait=20s`, { command: 'x' });
  exec = ran.json.id;
}, 60_000);
afterAll(releaseAll);

interface Schema {
  readonly $ref?: string;
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly allOf?: readonly Schema[];
}
interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly schema?: Schema;
}
interface Described {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { schema: Schema }>> };
}
interface Operation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
  readonly bytes: boolean;
}

async function operations(): Promise<{ all: Operation[]; schemas: Record<string, Schema> }> {
  const { json } = await gateway.api.get('/openapi.json');
  const all: Operation[] = [];
  for (const [path, item] of Object.entries<Record<string, Described>>(json.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const content = operation.requestBody?.content;
      all.push({
        method: method.toUpperCase(),
        path,
        parameters: operation.parameters ?? [],
        body: content?.['application/json']?.schema ?? null,
        bytes: content?.['application/octet-stream'] !== undefined,
      });
    }
  }
  return { all, schemas: json.components.schemas };
}

const ODD_TEXTS = [
  '',
  ' ',
  '\0',
  '\u{1f600}',
  '\ud800',
  '../../etc/passwd',
  '%00',
  '%2e%2e%2f',
  "'; DROP TABLE events; --",
  '#{7*7}',
  '__proto__',
  'constructor',
  'toString',
  'null',
  'NaN',
  '1e309',
  '-0',
  '-1',
  '9007199254740993',
  '99999999999999999999999999',
  'x'.repeat(5000),
  '\r\nX-Injected: yes',
  'a=b&c=d',
  '[]',
  '{}',
  'true',
];

class Fuzzer {
  constructor(
    private readonly random: SeededRandom,
    private readonly schemas: Readonly<Record<string, Schema>>,
  ) {}

  /** Mostly what the schema says, with something else somewhere. */
  value(schema: Schema, depth = 0): unknown {
    if (this.random.integer(8) === 0) return this.odd(depth);
    const known = schema.$ref
      ? this.schemas[schema.$ref.split('/').at(-1) ?? '']
      : schema.allOf?.[0];
    if (known) return this.value(known, depth);
    if (schema.enum) return this.random.pick(schema.enum);
    switch (schema.type) {
      case 'object':
        return this.object(schema, depth);
      case 'array':
        return Array.from({ length: this.random.integer(5) }, () =>
          this.value(schema.items ?? {}, depth + 1),
        );
      case 'integer':
      case 'number':
        return this.number(schema);
      case 'boolean':
        return this.random.integer(2) === 0;
      default:
        return this.random.pick(['abc', 'a-b', '/tmp', 'SIGTERM', '30s', ...ODD_TEXTS]);
    }
  }

  text(schema: Schema): string {
    const value = this.value(schema);
    return typeof value === 'string' ? value : JSON.stringify(value ?? null);
  }

  private object({ properties, additionalProperties }: Schema, depth: number): unknown {
    const entries: [string, unknown][] = [];
    for (const [name, schema] of Object.entries(properties ?? {}))
      if (this.random.integer(3) > 0) entries.push([name, this.value(schema, depth + 1)]);
    if (typeof additionalProperties === 'object')
      for (let left = this.random.integer(4); left > 0; left -= 1)
        entries.push([
          this.random.pick(['a', 'B_1', ...ODD_TEXTS]),
          this.value(additionalProperties, depth + 1),
        ]);
    if (this.random.integer(10) === 0) entries.push([this.random.pick(ODD_TEXTS), this.odd(depth)]);
    return Object.fromEntries(entries);
  }

  private number({ minimum = 0, maximum = 1000 }: Schema): number {
    return this.random.pick([
      minimum,
      maximum,
      minimum - 1,
      maximum + 1,
      0.5,
      1e21,
      minimum + this.random.integer(10),
    ]);
  }

  private odd(depth: number): unknown {
    const nested = depth < 3 ? [{ deep: this.odd(depth + 1) }, [this.odd(depth + 1)]] : [];
    return this.random.pick<unknown>([
      ...[null, true, 0, -1, 1.5, 1e300, [], {}, [[]], ...nested],
      ...ODD_TEXTS,
    ]);
  }
}

function urlOf({ path, parameters }: Operation, fuzzer: Fuzzer, random: SeededRandom): string {
  const at = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const known = { sessionId: session, execId: exec, sha256: '0'.repeat(64) }[name];
    const value = known && random.integer(3) > 0 ? known : random.pick(ODD_TEXTS);
    return safely(value) || 'x';
  });
  const query = parameters
    .filter((each) => each.in === 'query' && random.integer(2) === 0)
    // A follower would wait for ever for what never comes.
    .filter(({ name }) => name !== 'follow' && name !== 'wait')
    .map(({ name, schema }) => `${name}=${safely(fuzzer.text(schema ?? {}))}`);
  return query.length > 0 ? `${at}?${query.join('&')}` : at;
}

/** Half of a surrogate pair has no encoding. */
const safely = (text: string): string => encodeURIComponent(Buffer.from(text).toString());

function isFine({ status, text, headers }: Reply): boolean {
  const isAllowed = status < 500 || status === 503;
  const hasStack = /\n\s+at |node_modules|\/src\/|\.ts:\d|\.js:\d/.test(text);
  const isError = status >= 400;
  const isJson = headers.get('content-type')?.startsWith('application/json') ?? false;
  return isAllowed && !(isError && hasStack) && (!isError || isJson) && !headers.has('x-injected');
}

describe(`every endpoint, fuzzed from its description (seed ${SEED})`, () => {
  it('answers whatever it gets with what it promises: no 5xx but 503, no stack, no crash', async () => {
    const { all, schemas } = await operations();
    expect(all.length).toBeGreaterThan(18);
    const random = seededRandom(SEED);
    const fuzzer = new Fuzzer(random, schemas);
    const statuses = new Map<number, number>();
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const operation of all) {
        const url = urlOf(operation, fuzzer, random);
        const bytes = random.bytes(random.integer(100));
        const body = operation.bytes
          ? bytes
          : operation.body
            ? fuzzer.value(operation.body)
            : undefined;
        const accept = random.pick(['*/*', 'application/json', 'text/event-stream', 'nonsense']);
        const isStreamed = accept === 'text/event-stream' && operation.path.endsWith('/execs');
        const headers: Record<string, string> = isStreamed ? {} : { accept };
        if (random.integer(5) === 0)
          headers['last-event-id'] = random.pick(['0@0', '5@99999', '-1', 'x', '1']);
        const reply = await gateway.api.call(operation.method, url, { body, headers });
        statuses.set(reply.status, (statuses.get(reply.status) ?? 0) + 1);
        if (!isFine(reply))
          throw new Error(
            `${operation.method} ${url} ${JSON.stringify(body)?.slice(0, 2000)} → ${reply.status} ${reply.text.slice(0, 2000)}`,
          );
      }
    }
    expect(statuses.get(400)).toBeGreaterThan(0);
    expect(statuses.get(404)).toBeGreaterThan(0);
    expect((statuses.get(200) ?? 0) + (statuses.get(201) ?? 0)).toBeGreaterThan(0);
    expect((await gateway.api.get('/health')).status).toBe(200);
    expect(gateway.log()).not.toContain('"level":50');
  }, 180_000);

  it('answers bodies that are no JSON, in no known type, or in no known encoding', async () => {
    const bodies: readonly [string, string | Uint8Array][] = [
      ['application/json', '{'],
      ['application/json', '{"name":"a"}}'],
      ['application/json', '{"__proto__":{"x":1}}'],
      ['application/json', '{"constructor":{"prototype":{"x":1}}}'],
      ['application/json', '"text"'],
      ['application/json', 'null'],
      ['application/json', '[1]'],
      ['application/json', `${'['.repeat(20_000)}${']'.repeat(20_000)}`],
      ['application/json', `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`],
      ['application/json', new Uint8Array([0xff, 0xfe, 0x00])],
      ['application/json; charset=utf-16', '{}'],
      ['text/plain', 'x'],
      ['application/xml', '<a/>'],
      ['application/octet-stream', new Uint8Array([1, 2, 3])],
      ['multipart/form-data; boundary=x', '--x--'],
      ['nonsense', 'x'],
      ['', 'x'],
    ];
    for (const [type, body] of bodies) {
      for (const path of ['/v1/sessions', `/v1/sessions/${session}/execs`, '/v1/api-keys']) {
        const response = await fetch(`${gateway.url}${path}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${gateway.api.key}`, 'content-type': type },
          body: body as string,
        });
        const text = await response.text();
        expect([type, path, response.status >= 500]).toEqual([type, path, false]);
        expect(text).not.toMatch(/node_modules|\n\s+at /);
      }
    }
    expect((await gateway.api.get('/health')).status).toBe(200);
  }, 60_000);
});
