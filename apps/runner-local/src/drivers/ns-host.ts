import type { NsFreezer } from './ns-cgroup';
import type { NsDisks, NsStoreKind } from './ns-checkpoint-store';
import type { NsStore } from './ns-store';
import type { NsUser } from './ns-user';

export interface NsDriverOptions {
  /** The driver's own directory, absolute; every sandbox it ever finds is in there. */
  readonly dataDir: string;
  /** `vmux-ns`. */
  readonly launcherPath: string;
  /** `vmux-supervisor`. */
  readonly supervisorPath: string;
  /** Root directories to offer as images, by name; without one the host's own programs are the base. */
  readonly images?: Readonly<Record<string, string>>;
  /** Room for output that is not acknowledged yet, for each sandbox. */
  readonly spoolMiB?: number;
  readonly cgroupParent?: string;
  /** Whether sandboxes may be given the public internet; changes the host's firewall. Off by default. */
  readonly egress?: boolean;
  /** Name servers for sandboxes with egress where the host's own are private. */
  readonly resolvers?: readonly string[];
  /** Where the disks of sandboxes are: `plain` makes no filesystem of its own for native checkpoints. */
  readonly store?: NsStoreKind;
}

/** What the driver finds on this machine once, when it is first used. */
export interface NsHost {
  readonly user: NsUser;
  readonly store: NsStore;
  readonly disks: NsDisks;
  readonly freezer: NsFreezer | undefined;
  readonly whyNoFreezer: string | undefined;
}
