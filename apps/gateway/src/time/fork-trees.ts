import type { Caller } from '../application/key-ring';
import type { RunnerBoard } from '../application/runner-board';
import type { SessionCommands } from '../application/session-commands';
import type { SessionReader } from '../application/session-reader';
import type { SessionView } from '../application/session-view';

export interface ForkNode {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly provider: string;
  readonly emulated: boolean;
  readonly createdAt: string;
  /** Where it was forked from its parent. */
  readonly checkpointId: string | null;
  readonly forks: readonly ForkNode[];
}

const MAX_NODES = 1000;
const MAX_ANCESTORS = 200;

/** Which sessions were forked from which, as their own histories say. */
export class ForkTrees {
  constructor(
    private readonly sessions: Pick<SessionCommands, 'session'>,
    private readonly reader: Pick<SessionReader, 'read'>,
    private readonly runners: Pick<RunnerBoard, 'isEmulated'>,
  ) {}

  /** The whole tree of a session, from the first one that still exists; very large ones are cut. */
  async of(caller: Caller, sessionId: string): Promise<ForkNode> {
    let root = await this.sessions.session(caller, sessionId);
    for (let up = 0; root.lineage && up < MAX_ANCESTORS; up += 1) {
      const parent = await this.own(caller, root.lineage.parent);
      if (!parent) break;
      root = parent;
    }
    return this.node(caller, root, { left: MAX_NODES });
  }

  private async node(caller: Caller, view: SessionView, room: { left: number }): Promise<ForkNode> {
    room.left -= 1;
    const forks: ForkNode[] = [];
    for (const id of view.forks) {
      if (room.left <= 0) break;
      const child = await this.own(caller, id);
      if (child) forks.push(await this.node(caller, child, room));
    }
    const { id, name, status, provider, lineage } = view;
    const createdAt = new Date(view.createdAt).toISOString();
    const checkpointId = lineage?.checkpoint.checkpointId ?? null;
    const emulated = this.runners.isEmulated(provider);
    return { id, name, status, provider, emulated, createdAt, checkpointId, forks };
  }

  /** A deleted session has nothing left to tell. */
  private async own(caller: Caller, sessionId: string): Promise<SessionView | null> {
    const view = await this.reader.read(sessionId);
    return view && view.owner === caller.owner && view.status !== 'deleted' ? view : null;
  }
}
