declare module 'cloudflare:workers' {
  import type { ObjectState } from './platform';
  export class DurableObject<Env = unknown> {
    protected readonly ctx: ObjectState;
    protected readonly env: Env;
    constructor(ctx: ObjectState, env: Env);
  }
  export class WorkerEntrypoint<Env = unknown> {
    protected readonly ctx: ObjectState;
    protected readonly env: Env;
  }
}
