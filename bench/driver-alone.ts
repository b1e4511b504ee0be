import { join } from 'node:path';
import type { SandboxId } from '@vmux/runner-kit';
import { projectRoot } from '@vmux/testing';
import { NsDriver } from '../apps/runner-local/src/drivers/ns-driver';

/** The ns driver of a stack's runner, once more and without the runner. */
export class DriverAlone {
  readonly driver: NsDriver;

  constructor(dataDir: string) {
    const native = join(projectRoot(), 'dist/native');
    this.driver = new NsDriver({
      dataDir: join(dataDir, 'runner/ns'),
      launcherPath: join(native, 'vmux-ns'),
      supervisorPath: join(native, 'vmux-supervisor'),
    });
  }

  /** The newest: what a rollback has replaced may still be there. */
  async idOf(session: string): Promise<SandboxId> {
    const records = await this.driver.list();
    const ids = records.map(({ id }) => id).filter(({ sessionId }) => sessionId === session);
    const newest = ids.sort((a, b) => b.epoch - a.epoch)[0];
    if (!newest) throw new Error(`no sandbox of ${session}`);
    return newest;
  }

  /** Sandboxes outlive the stack. */
  async sweep(): Promise<void> {
    for (const { id } of await this.driver.list()) await this.driver.destroy(id);
    await this.driver.close();
  }
}
