import { createGunzip } from 'node:zlib';
import type { ArtifactStore } from '@vmux/artifacts';
import type { SessionSpec } from '@vmux/events';
import { DriverRefused } from '../errors';
import { workspaceOf } from './exec-facts';
import type { Origin, RunnerJournal } from './runner-journal';
import type { Held } from './sandboxes';

export interface PrepareSettings {
  readonly artifacts: ArtifactStore | undefined;
  readonly journal: RunnerJournal;
  readonly signal: AbortSignal;
}

/** Where a sandbox's first files come from. */
export interface Beginning {
  /** What it was made of, found out before anything runs in it. */
  origin(): Promise<Origin>;
  /** Puts a checkpoint's files back and says what came of it; without it the bundle is unpacked. */
  readonly restore: (() => Promise<Origin>) | undefined;
}

/**
 * Makes a new sandbox ready for its first exec: the workspace, with the session's bundle or a checkpoint's
 * files unpacked inside the sandbox. Done once per sandbox, also across restarts of the runner: later it
 * would undo work. Says when a bundle was unpacked, if one was now.
 */
export async function prepare(
  held: Held,
  spec: SessionSpec,
  { artifacts, journal, signal }: PrepareSettings,
  { origin, restore }: Beginning,
): Promise<{ readonly extractedAt: number } | undefined> {
  const { id, worker } = held;
  if (await journal.isPrepared(id)) return undefined;
  const { files } = await worker.client();
  const workspace = workspaceOf(held, spec.cwd);
  await files.makeDirectory(workspace, { makeParents: true, signal });
  if (restore) {
    // A checkpoint's files hold what became of the bundle.
    await journal.recordPrepared(id, await restore());
    return undefined;
  }
  const found = origin();
  // Awaited below, whatever the unpacking comes to.
  found.catch(() => undefined);
  if (spec.bundle !== null) {
    if (!artifacts)
      throw new DriverRefused(
        'unsupported',
        'this runner has no artifact store: set VMUX_ARTIFACTS_DIR',
      );
    const { stream } = await artifacts.open(spec.bundle);
    const archive = stream.pipe(createGunzip());
    stream.on('error', (error) => archive.destroy(error));
    await files.tarIn(workspace, archive, { signal });
  }
  const extractedAt = Date.now();
  await journal.recordPrepared(id, await found);
  return spec.bundle === null ? undefined : { extractedAt };
}
