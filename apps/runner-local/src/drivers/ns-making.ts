import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NativeCheckpoint, SandboxSpec } from '@vmux/runner-kit';
import { type BaseMaker, directoryBase, makeHostBase, type NsBase } from './ns-base';
import { NsCheckpoints, SINCE, treesOf } from './ns-checkpoint';
import { interfaceArgument, networkArguments, resolverText } from './ns-egress';
import { allowHostsOf, hostArguments, resolveHosts } from './ns-egress-hosts';
import { behindFirewall, dropUnusedFirewall } from './ns-firewall';
import type { NsDriverOptions, NsHost } from './ns-host';
import { runProgram } from './ns-launcher';
import { createArguments, NO_RESOLVER, remainsArguments, rootlessArguments } from './ns-spec';
import { cgroupNameOf, keyOf, type NsState, type NsStore } from './ns-store';
import { diskTemplate, unreadableCopy } from './ns-templates';
import type { NsUser } from './ns-user';

/** Makes sandboxes and removes them: their files, their network, and the calls of the launcher. */
export class NsMaking {
  readonly #bases = new Map<string | null, Promise<NsBase>>();
  #supervisor: { readonly version: string; readonly path: Promise<string> } | undefined;

  constructor(private readonly options: Required<NsDriverOptions>) {}

  /** `greet` proves that it is there and says when it began, in microseconds. */
  async make(
    spec: SandboxSpec,
    from: NativeCheckpoint | null,
    host: NsHost,
    greet: () => Promise<number>,
    signal?: AbortSignal,
  ): Promise<void> {
    const { store, disks, user } = host;
    const key = keyOf(spec.id);
    const base = await this.#baseOf(spec.image, user);
    const kept =
      from && (await new NsCheckpoints(disks, this.options.launcherPath).forBase(from, base));
    const [supervisor, templates] = await Promise.all([
      this.#supervisorCopy(store),
      this.#templates(host, spec.limits.diskMiB),
    ]);
    signal?.throwIfAborted();
    const { id, limits, egress, image } = spec;
    const sinceNs = kept?.sinceNs ?? null;
    const facts = { id, limits, egress, image, generation: base.generation, lent: user.lent };
    const cgroupRoot = user.delegated?.root ?? null;
    const origin = { sinceNs, restoredFrom: kept?.ref ?? null, trees: treesOf(base) };
    const createdAtMs = Date.now();
    const state = await store.add(key, {
      version: 1,
      ...facts,
      ...origin,
      cgroupRoot,
      createdAtMs,
    });
    try {
      const dir = store.directoryOf(key);
      if (disks.whyNot === undefined) await disks.add(key, dir, kept ?? limits.diskMiB);
      const start = async () => {
        const network = await this.#networkOf(spec, state.slot);
        const { cgroupParent, launcherPath } = this.options;
        const files = { dir, supervisor, ...templates };
        const args = createArguments(state, base, files, { user, cgroupParent }, network);
        await runProgram(launcherPath, args, signal);
      };
      // The firewall stands before the sandbox does: without it there is none.
      await (egress ? behindFirewall(start) : start());
      const startedAtUs = await greet();
      await writeFile(join(dir, SINCE), sinceNs ?? `${startedAtUs}000`, { mode: 0o600 });
    } catch (fault) {
      await this.remove(key, host);
      throw fault;
    }
  }

  async remove(key: string, { store, disks }: Pick<NsHost, 'store' | 'disks'>): Promise<void> {
    const state = await store.read(key);
    const { launcherPath, cgroupParent } = this.options;
    const names = [`--name=${cgroupNameOf(key)}`, `--cgroup-parent=${cgroupParent}`];
    const network = state?.egress ? [interfaceArgument(state.slot)] : [];
    const dir = `--dir=${store.directoryOf(key)}`;
    const rootless = rootlessArguments(state ?? {});
    await runProgram(launcherPath, ['destroy', dir, ...names, ...network, ...rootless]);
    await disks.remove(key);
    if (state?.egress) await allowHostsOf(state.slot, []);
    if (state) await store.freeSlot(state.slot);
    if (state?.egress) await dropUnusedFirewall();
  }

  /** Has what a sandbox left in its spool served, by a supervisor outside it. */
  async serveRemains(state: NsState, store: NsStore, signal?: AbortSignal): Promise<void> {
    const directory = store.directoryOf(keyOf(state.id));
    const { cgroupParent, launcherPath } = this.options;
    const supervisor = await this.#supervisorCopy(store);
    const args = remainsArguments(state, { directory, supervisor, cgroupParent });
    await runProgram(launcherPath, args, signal);
  }

  bases(user: NsUser): BaseMaker {
    const { dataDir, launcherPath: launcher } = this.options;
    return { directory: join(dataDir, 'base'), launcher, user };
  }

  /** Without root a disk and a spool are directories. */
  async #templates({ user, disks, store }: NsHost, diskMiB: number) {
    if (!user.isRoot) return { disk: '', spool: '' };
    const templates = join(store.dataDir, 'templates');
    const [disk, spool] = await Promise.all([
      disks.whyNot === undefined ? '' : diskTemplate(templates, diskMiB),
      diskTemplate(templates, this.options.spoolMiB),
    ]);
    return { disk, spool };
  }

  /** Copied again when the program was built anew. */
  async #supervisorCopy(store: NsStore): Promise<string> {
    const { supervisorPath } = this.options;
    const { ino, size, mtimeMs } = await stat(supervisorPath);
    const version = `${ino}:${size}:${mtimeMs}`;
    if (this.#supervisor?.version !== version) {
      const path = unreadableCopy(join(store.dataDir, 'bin'), supervisorPath);
      this.#supervisor = { version, path };
      path.catch(() => {
        this.#supervisor = undefined;
      });
    }
    return this.#supervisor.path;
  }

  async #networkOf({ egress, allowHosts }: SandboxSpec, slot: number) {
    if (!egress) return { resolver: NO_RESOLVER, args: [] };
    const allowed = await resolveHosts(allowHosts ?? []);
    await allowHostsOf(slot, allowed);
    const args = [...networkArguments(slot), ...hostArguments(allowed)];
    return { resolver: await resolverText(this.options.resolvers), args };
  }

  #baseOf(image: string | null, user: NsUser): Promise<NsBase> {
    const directory = image === null ? undefined : this.options.images[image];
    const make = () =>
      directory === undefined
        ? makeHostBase(this.bases(user))
        : directoryBase(directory, this.bases(user));
    // Root uses a directory as it is, wherever its name leads now.
    if (user.isRoot && directory !== undefined) return make();
    const known = this.#bases.get(image);
    if (known) return known;
    const made = make().catch((fault) => {
      this.#bases.delete(image);
      throw fault;
    });
    this.#bases.set(image, made);
    return made;
  }
}
