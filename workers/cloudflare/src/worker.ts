import type { Env } from './env';
import { INSTANCE_TYPES, instanceTypeFor } from './instance-types';
import { namespaceOf } from './namespaces';
import { parseCreate } from './parse-create';
import type { ExecutionContext } from './platform';
import { reapLeaked } from './reaper';
import { type Entry, Registry } from './registry';
import { NAME_HEADER, nameText } from './runner-sandbox';
import { HEADERS, LEAST_KEY_CHARS, verify } from './signature';
import {
  type About,
  type Answer,
  answer,
  type CreateBody,
  type Found,
  faultOfName,
  type Listed,
  type Refused,
  refuse,
  type SandboxName,
  STATUS,
} from './wire';

const maxBodyBytes = 64 * 1024;
/** Objects asked at once for a list. */
const askedAtOnce = 32;
const lowestPort = 1024;

interface Call {
  readonly env: Env;
  readonly request: Request;
  readonly url: URL;
  readonly runner: string;
  readonly body: Uint8Array;
  /** Of the sandbox that is asked for, if the registry has it. */
  readonly entry: Entry | null;
}

/** What a path asks for. */
type Target =
  | { readonly kind: 'about' | 'list' }
  | {
      readonly kind: 'sandbox';
      readonly name: SandboxName;
      readonly verb: string;
      readonly rest: readonly string[];
    };

export const registryOf = (env: Env) => env.REGISTRY.get(env.REGISTRY.idFromName('registry'));

export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    // What has begun is finished, also for a caller that hangs up: its next call finds the outcome.
    const handled = handle(request, env);
    ctx.waitUntil(handled.catch(() => undefined));
    try {
      return await handled;
    } catch (fault) {
      const message = fault instanceof Error ? fault.message : String(fault);
      return refusal(refuse('unavailable', message));
    }
  },

  async scheduled(_event: unknown, env: Env): Promise<void> {
    await reapLeaked(env, registryOf(env), Date.now());
  },
};

async function handle(request: Request, env: Env): Promise<Response> {
  const keys = [env.VMUX_KEY, env.VMUX_KEY_PREVIOUS].filter(
    (key): key is string => key !== undefined && key.length >= LEAST_KEY_CHARS,
  );
  if (keys.length === 0)
    return refusal(refuse('closed', 'this Worker has no key: set the secret VMUX_KEY'));
  const url = new URL(request.url);
  const runner = request.headers.get(HEADERS.runner) ?? '';
  const target = targetOf(url.pathname);
  const name = 'kind' in target && target.kind === 'sandbox' ? target.name : null;
  const isStreamed = name !== null && 'verb' in target && /^(pipe|ports)$/.test(target.verb);
  const body = isStreamed ? new Uint8Array() : await bodyOf(request);
  if (!body) return refusal(refuse('invalid', `a body has at most ${maxBodyBytes} bytes`));
  const signed = { method: request.method, target: `${url.pathname}${url.search}`, runner, body };
  const proof = await verify(keys, signed, (name) => request.headers.get(name));
  if (proof.verdict === 'unsigned')
    return refusal(refuse('unsigned', 'the signature is missing or wrong: check the key'));
  if (proof.verdict === 'expired')
    return refusal(refuse('expired', 'the signature is too old or too new: check the clock'));
  const { nonce, voidAtMs } = proof;
  const admission = { nonce, voidAtMs, nowMs: Date.now(), name };
  const { isFresh, entry } = await registryOf(env).admit(admission);
  if (!isFresh) return refusal(refuse('replayed', 'the signature was used before'));
  if (!/^[a-z0-9-]{1,63}$/.test(runner))
    return refusal(refuse('invalid', 'a runner’s name is 1–63 of a-z, 0-9 and dashes'));
  if ('code' in target) return refusal(target);
  return route({ env, request, url, runner, body, entry }, target);
}

function targetOf(pathname: string): Target | Refused {
  const [root, version, kind, sessionId, epoch = '', instance = '', verb = '', ...rest] =
    pathname.split('/');
  const notFound = refuse('not_found', 'there is no such thing');
  if (root !== '' || version !== 'v1') return notFound;
  if (kind === 'about' && sessionId === undefined) return { kind: 'about' };
  if (kind === 'sandboxes' && sessionId === undefined) return { kind: 'list' };
  if (kind !== 'sandboxes' || !sessionId) return notFound;
  const name = { sessionId, epoch: /^\d{1,15}$/.test(epoch) ? Number(epoch) : 0, instance };
  const fault = faultOfName(name);
  return fault ? refuse('invalid', fault) : { kind: 'sandbox', name, verb, rest };
}

async function route(call: Call, target: Target): Promise<Response> {
  const { method } = call.request;
  if (target.kind === 'about' && method === 'GET') return json(answer(aboutThis(call.env)));
  if (target.kind === 'list' && method === 'GET') return json(await list(call));
  if (target.kind !== 'sandbox') return refusal(refuse('not_found', 'there is no such thing'));
  const { name, verb, rest } = target;
  if (verb === 'ports') return port(call, name, rest);
  switch (`${method} ${verb}`) {
    case 'PUT ':
      return json(await create(call, name));
    case 'GET ':
      return json(await probe(call, name));
    case 'DELETE ':
      return json(await destroy(call, name));
    case 'POST adopt':
      return json(await adopt(call, name));
    case 'POST checkpoint':
      return json(await checkpoint(call, name));
    case 'GET pipe':
      return forward(call, name, '/pipe');
    default:
      return refusal(refuse('not_found', 'there is no such thing'));
  }
}

export function aboutThis(env: Env): About {
  const emulated = env.VMUX_EMULATED === '1';
  return {
    emulated,
    instanceTypes: INSTANCE_TYPES.filter(({ binding }) => namespaceOf(env, binding)).map(
      ({ name }) => name,
    ),
    checkpoints: env.BACKUP_BUCKET !== undefined,
    egress: !emulated,
  };
}

async function create({ env, body, runner }: Call, name: SandboxName): Promise<Answer<null>> {
  const asked: CreateBody | Refused = parseCreate(body);
  if ('ok' in asked) return asked;
  const { instanceTypes, egress } = aboutThis(env);
  if (asked.egress && !egress)
    return refuse('unsupported', 'the emulator gives its sandboxes no network');
  const type = instanceTypeFor(asked.limits, instanceTypes);
  if ('refused' in type) return refuse('unsupported', type.refused);
  const { limits } = asked;
  const entry: Entry = { name, binding: type.binding, runner, limits, createdAtMs: Date.now() };
  const begun = await registryOf(env).begin(entry);
  if (!begun.ok) return begun;
  const object = objectOf(env, entry);
  const made = await object.createSandbox(name, asked, runner);
  if (made.ok && !(await registryOf(env).find(name))) {
    await object.destroySandbox(name, runner);
    return refuse('sandbox_lost', 'it was destroyed while it was created');
  }
  if (!made.ok && made.code !== 'exists') await registryOf(env).markDestroyed(name, Date.now());
  return made;
}

async function list({ env, runner }: Call): Promise<Answer<readonly Listed[]>> {
  const entries = await registryOf(env).list(runner);
  const listed: Listed[] = [];
  for (let at = 0; at < entries.length; at += askedAtOnce) {
    const some = entries.slice(at, at + askedAtOnce).map(async (entry) => {
      const { name: id, limits, createdAtMs } = entry;
      // Unreachable is not lost, and one of them hides none of the others.
      const unreachable = (): Found => ({ state: 'running' });
      const probe = await objectOf(env, entry).probe(id).catch(unreachable);
      return { id, limits, createdAtMs, probe };
    });
    listed.push(...(await Promise.all(some)));
  }
  return answer(listed);
}

async function probe({ env, runner, entry }: Call, name: SandboxName): Promise<Answer<Found>> {
  if (!entry) return answer({ state: 'gone', evidence: 'this Worker has no record of it' });
  if (entry.runner !== runner)
    return answer({ state: 'gone', evidence: `runner ${entry.runner} has taken it over` });
  return answer(await objectOf(env, entry).probe(name));
}

async function adopt({ env, runner, entry }: Call, name: SandboxName): Promise<Answer<Listed>> {
  if (!entry) return refuse('sandbox_lost', 'this Worker has no record of it');
  const adopted = await objectOf(env, entry).adopt(name, runner);
  if (!adopted.ok) return adopted;
  await registryOf(env).handOver(name, runner);
  const { limits, createdAtMs } = entry;
  return answer({ id: name, limits, createdAtMs, probe: { state: 'running' } });
}

async function checkpoint({ env, runner, entry }: Call, name: SandboxName) {
  if (!entry) return refuse('sandbox_lost', 'this Worker has no record of it');
  return objectOf(env, entry).checkpoint(name, runner);
}

async function destroy({ env, runner, entry }: Call, name: SandboxName): Promise<Answer<null>> {
  if (entry && entry.runner !== runner) return answer(null);
  // Marked before, so that a create that is still on its way makes nothing.
  if (!entry) await registryOf(env).markDestroyed(name, Date.now());
  else {
    const destroyed = await objectOf(env, entry).destroySandbox(name, runner);
    if (!destroyed.ok) return destroyed;
    if (destroyed.value) await registryOf(env).markDestroyed(name, Date.now());
  }
  return answer(null);
}

/** Of what listens inside, on the sandbox's own loopback too. */
async function port(call: Call, name: SandboxName, [number, ...rest]: readonly string[]) {
  const asked = Number(number);
  if (!Number.isInteger(asked) || asked < lowestPort || asked > 65_535)
    return refusal(refuse('unsupported', `only ports from ${lowestPort} on can be reached`));
  return forward(call, name, `/ports/${asked}/${rest.join('/')}${call.url.search}`);
}

async function forward(
  { env, request, runner, entry }: Call,
  name: SandboxName,
  path: string,
): Promise<Response> {
  if (!entry) return refusal(refuse('sandbox_lost', 'this Worker has no record of it'));
  const forwarded = new Request(`http://sandbox${path}`, request);
  forwarded.headers.set(NAME_HEADER, nameText(name));
  forwarded.headers.set(HEADERS.runner, runner);
  return objectOf(env, entry).fetch(forwarded);
}

export function objectOf(env: Env, { binding, name }: Pick<Entry, 'binding' | 'name'>) {
  const namespace = namespaceOf(env, binding);
  if (!namespace) throw new Error(`this Worker has no binding ${binding}`);
  return namespace.get(namespace.idFromName(nameText(name)));
}

/** Who sends it is not known yet: no more of it is read than may be in it. */
async function bodyOf({ body }: Request): Promise<Uint8Array | undefined> {
  const read = new Uint8Array(maxBodyBytes);
  let size = 0;
  for await (const piece of (body ?? []) as AsyncIterable<Uint8Array>) {
    if (size + piece.length > maxBodyBytes) return undefined;
    read.set(piece, size);
    size += piece.length;
  }
  return read.subarray(0, size);
}

const json = <T>(given: Answer<T>): Response =>
  given.ok ? Response.json(given.value) : refusal(given);

const refusal = ({ code, message }: Refused): Response =>
  Response.json({ code, message }, { status: STATUS[code] });

export { ContainerProxy } from '@cloudflare/sandbox';
export { Registry };
