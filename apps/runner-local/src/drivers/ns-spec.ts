import { DriverRefused, type SandboxSpec } from '@vmux/runner-kit';
import type { NsBase } from './ns-base';
import { cgroupNameOf, checkId, keyOf, type NsState, uidBaseOf } from './ns-store';
import { lentArguments, type NsUser } from './ns-user';

/** Refuses what the launcher would refuse, and what this driver does not offer, before anything is made. */
export function checkSpec(
  spec: SandboxSpec,
  offered: {
    readonly images: Readonly<Record<string, string>>;
    readonly egress: boolean;
    readonly isRoot: boolean;
  },
): void {
  checkId(spec.id);
  const { cpus, memoryMiB, diskMiB, pids } = spec.limits;
  const whole = (value: number, least: number, most: number, name: string) => {
    if (!Number.isSafeInteger(value) || value < least || value > most)
      throw new DriverRefused('invalid', `${name} takes a whole number from ${least} to ${most}`);
  };
  if (!(cpus >= 0.01 && cpus <= 1024))
    throw new DriverRefused('invalid', 'cpus takes 0.01 to 1024');
  whole(memoryMiB, 16, 1 << 24, 'memoryMiB');
  whole(diskMiB, 16, 1 << 24, 'diskMiB');
  whole(pids, 4, 1 << 22, 'pids');
  if (spec.egress && !(offered.egress && offered.isRoot))
    throw new DriverRefused(
      'unsupported',
      offered.isRoot
        ? 'this runner gives its ns sandboxes no network: ask for a sandbox without egress'
        : 'ns sandboxes that are made without root have no network: ask for one without egress, or run vmux as root',
    );
  if (spec.needsDiskLimit && !offered.isRoot)
    throw new DriverRefused(
      'unsupported',
      'the disk of an ns sandbox that is made without root cannot be limited: ask for no limit, or run vmux as root',
    );
  if (spec.allowHosts?.length && !spec.egress)
    throw new DriverRefused('invalid', 'allowHosts adds to egress: switch egress on');
  if (spec.gpu !== null) throw new DriverRefused('unsupported', 'ns sandboxes see no GPU');
  if (spec.image !== null && !Object.hasOwn(offered.images, spec.image))
    throw new DriverRefused('unsupported', `there is no image named ${spec.image}`);
}

export const rootlessArguments = ({ lent, cgroupRoot }: Partial<NsState>): readonly string[] => [
  ...lentArguments(lent),
  ...(cgroupRoot ? [`--cgroup-root=${cgroupRoot}`] : []),
];

/** No name resolves without a network, and it does so at once. */
export const NO_RESOLVER = 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n';

export function createArguments(
  state: NsState,
  base: NsBase,
  files: { dir: string; disk: string; spool: string; supervisor: string },
  { user, cgroupParent }: { readonly user: NsUser; readonly cgroupParent: string },
  network: { readonly resolver: string; readonly args: readonly string[] },
): string[] {
  const { id, limits } = state;
  return [
    'create',
    `--dir=${files.dir}`,
    `--name=${cgroupNameOf(keyOf(id))}`,
    `--cgroup-parent=${cgroupParent}`,
    `--hostname=${id.sessionId}`,
    `--epoch=${id.epoch}`,
    `--instance=${id.instance}`,
    ...(state.sinceNs ? [`--since-ns=${state.sinceNs}`] : []),
    `--supervisor=${files.supervisor}`,
    `--resolver=${network.resolver}`,
    ...network.args,
    ...(user.isRoot
      ? [
          `--uid-base=${uidBaseOf(state.slot)}`,
          `--disk-template=${files.disk}`,
          `--spool-template=${files.spool}`,
        ]
      : rootlessArguments(state)),
    `--memory-mib=${limits.memoryMiB}`,
    `--cpu-millis=${Math.max(10, Math.round(limits.cpus * 1000))}`,
    `--pids=${limits.pids}`,
    ...base.trees.map(({ target, lowers }) => `--tree=${target}=${lowers.join(':')}`),
    ...base.only.map(({ directory, names }) => `--only=${directory}=${names.join(':')}`),
  ];
}

export const remainsArguments = (
  { id, ...made }: NsState,
  at: {
    readonly directory: string;
    readonly supervisor: string;
    readonly cgroupParent: string;
  },
): string[] => [
  'salvage',
  ...rootlessArguments(made),
  `--dir=${at.directory}`,
  `--name=${cgroupNameOf(keyOf(id))}`,
  `--cgroup-parent=${at.cgroupParent}`,
  `--epoch=${id.epoch}`,
  `--instance=${id.instance}`,
  `--supervisor=${at.supervisor}`,
];
