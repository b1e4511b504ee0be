import type { Env } from '../../../workers/cloudflare/src/env';
import type { ExecutionContext, ObjectState } from '../../../workers/cloudflare/src/platform';
import { nameText, RunnerSandbox } from '../../../workers/cloudflare/src/runner-sandbox';
import deployed, { objectOf, registryOf } from '../../../workers/cloudflare/src/worker';
import { ContainerStub } from './container-stub';

interface EmulatorEnv extends Env {
  readonly STAND_IN_URL: string;
  readonly STAND_IN_TOKEN: string;
  /** How long the vendor's class takes between setting its alarm and starting a container. */
  readonly SLOW_START_MS?: string;
}

/** The deployed class, with the one thing that needs Cloudflare replaced before it is looked at. */
class EmulatedSandbox extends RunnerSandbox {
  constructor(ctx: ObjectState, env: EmulatorEnv) {
    const standIn = { url: env.STAND_IN_URL, token: env.STAND_IN_TOKEN };
    const container = new ContainerStub(standIn, ctx.id.toString());
    Object.defineProperty(ctx, 'container', { value: container });
    super(ctx, env);
    const slowMs = Number(env.SLOW_START_MS ?? 0);
    const slow = () => new Promise((done) => setTimeout(done, slowMs));
    // What the vendor's class waits for there.
    if (slowMs > 0) Object.defineProperty(this, 'refreshOutboundInterception', { value: slow });
    void ctx.blockConcurrencyWhile(() => container.refresh());
  }

  /** As an eviction does: everything in memory is gone. */
  evictObject(): void {
    this.ctx.abort('evicted by the emulator');
  }

  containerId(): string {
    return this.ctx.id.toString();
  }

  /** Another one whenever the object is made anew. */
  readonly incarnation = crypto.randomUUID();
  whichIncarnation(): string {
    return this.incarnation;
  }
}

export { ContainerProxy, Registry } from '../../../workers/cloudflare/src/worker';
export class SandboxLite extends EmulatedSandbox {}
export class SandboxBasic extends EmulatedSandbox {}
export class SandboxStandard1 extends EmulatedSandbox {}
export class SandboxStandard2 extends EmulatedSandbox {}
export class SandboxStandard3 extends EmulatedSandbox {}
export class SandboxStandard4 extends EmulatedSandbox {}

export default {
  ...deployed,
  async fetch(request: Request, env: EmulatorEnv, ctx: ExecutionContext): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (!pathname.startsWith('/emulator/')) return deployed.fetch(request, env, ctx);
    if (request.headers.get('x-vmux-stand-in') !== env.STAND_IN_TOKEN)
      return new Response('not for you', { status: 404 });
    return control(pathname.split('/').slice(2), env);
  },
};

async function control(
  [verb, sessionId = '', epoch, instance = '']: readonly string[],
  env: EmulatorEnv,
): Promise<Response> {
  if (verb === 'reap') return new Response(String(await deployed.scheduled(undefined, env)));
  const name = { sessionId, epoch: Number(epoch), instance };
  const entry = await registryOf(env).find(name);
  if (!entry) return new Response(`no sandbox ${nameText(name)}`, { status: 404 });
  const object = objectOf(env, entry) as unknown as EmulatedSandbox;
  if (verb === 'container') return new Response(await object.containerId());
  if (verb === 'incarnation') return new Response(await object.whichIncarnation());
  if (verb !== 'evict-object') return new Response('what?', { status: 404 });
  // The call itself is among what the eviction breaks.
  await Promise.resolve(object.evictObject()).catch(() => undefined);
  return new Response('evicted');
}
