import type { Bucket, ObjectNamespace } from './platform';
import type { Registry } from './registry';

/** Bindings and secrets, as wrangler.jsonc and the README name them. */
export interface Env {
  readonly REGISTRY: ObjectNamespace<Registry>;
  readonly BACKUP_BUCKET?: Bucket;
  /** Secrets. Without the first the Worker takes no request; the second is for changing keys. */
  readonly VMUX_KEY?: string;
  readonly VMUX_KEY_PREVIOUS?: string;
  /** How long a sandbox that nobody uses stays awake, e.g. `10m`. */
  readonly VMUX_SLEEP_AFTER?: string;
  /** Minutes after which a sandbox that no runner asked for is destroyed. */
  readonly VMUX_LEAKED_AFTER_MINUTES?: string;
  readonly VMUX_EMULATED?: string;
  /** One namespace for each instance type; see instance-types.ts. */
  readonly [binding: string]: unknown;
}
