import {
  DriverRefused,
  type ExecState,
  hasEnded,
  SandboxError,
  SupervisorRefused,
} from '@vmux/runner-kit';
import { type CallContext, ServerError, Status } from 'nice-grpc';
import type { FaultBoard } from './faults';
import type { Tokens } from './tokens';
import type { SnapshotRequest } from './wire';
import type { Emulated, WorkerPool } from './worker-pool';

interface OfExec {
  readonly taskId: string;
  readonly execId: string;
}
interface Start extends OfExec {
  readonly commandArgs: readonly string[];
  readonly workdir?: string;
  readonly env: Readonly<Record<string, string>>;
}
interface Read extends OfExec {
  readonly offset: number;
  readonly fileDescriptor: number;
}
interface Write extends OfExec {
  readonly offset: number;
  readonly data: Uint8Array;
  readonly eof: boolean;
}

const STDOUT = 0;

/** The calls of `modal.task_command_router.TaskCommandRouter` that the runner's SDK makes. */
export function commandRouter(pool: WorkerPool, board: FaultBoard, tokens: Tokens) {
  const sandboxOf = (taskId: string, { metadata }: CallContext): Emulated => {
    const token = String(metadata.get('authorization') ?? '').replace(/^Bearer /, '');
    if (tokens.subjectOf(token) !== taskId)
      throw new ServerError(Status.UNAUTHENTICATED, 'the router token is wrong or has expired');
    const sandbox = pool.byTask(taskId);
    if (!sandbox) throw new ServerError(Status.NOT_FOUND, `no task ${taskId}`);
    if (sandbox.result) throw new ServerError(Status.UNAVAILABLE, 'the task has finished');
    return sandbox;
  };

  async function* stdioRead(request: Read, context: CallContext) {
    const { box } = sandboxOf(request.taskId, context);
    const stream = request.fileDescriptor === STDOUT ? 'stdout' : 'stderr';
    const { dropOutputEveryBytes } = board.faults;
    let sent = 0;
    try {
      const { execId, offset } = request;
      for await (const data of box.output(execId, stream, offset, context.signal)) {
        yield { data };
        sent += data.length;
        if (dropOutputEveryBytes > 0 && sent >= dropOutputEveryBytes)
          throw new ServerError(Status.UNAVAILABLE, 'the stream was dropped (injected)');
      }
    } catch (fault) {
      throw translated(fault);
    }
  }

  const methods = {
    taskExecStart: async (request: Start, context: CallContext) => {
      const { box } = sandboxOf(request.taskId, context);
      const { commandArgs: argv, workdir: cwd, env } = request;
      await attempt(() => box.exec(request.execId, { argv, cwd, env }));
      return {};
    },
    taskExecStdioRead: stdioRead,
    taskExecStdinWrite: async (request: Write, context: CallContext) => {
      const { box } = sandboxOf(request.taskId, context);
      const { execId, offset, data, eof } = request;
      const { inputDelayMs } = board.faults;
      board.inputCalls += 1;
      if (inputDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, inputDelayMs));
      await attempt(() => box.input(execId, offset, data, eof));
      return {};
    },
    taskSnapshotFilesystem: async (request: SnapshotRequest, context: CallContext) => {
      const sandbox = sandboxOf(request.taskId, context);
      const { snapshotDelayMs, strangeSnapshots } = board.faults;
      if (snapshotDelayMs > 0) await new Promise((end) => setTimeout(end, snapshotDelayMs));
      if (strangeSnapshots) await attempt(() => sandbox.box.touch('/srv/strange'));
      if (board.takes('failSnapshots'))
        throw new ServerError(Status.FAILED_PRECONDITION, 'the snapshot failed (injected)');
      const imageId = await attempt(() => pool.snapshot(sandbox, request));
      if (board.takes('loseSnapshotAnswers'))
        throw new ServerError(Status.UNAVAILABLE, 'the answer was lost (injected)');
      return { imageId };
    },
    taskExecPoll: async (request: OfExec, context: CallContext) => {
      const { box } = sandboxOf(request.taskId, context);
      return exitOf(await attempt(() => box.state(request.execId)));
    },
    taskExecWait: async (request: OfExec, context: CallContext) => {
      const { box } = sandboxOf(request.taskId, context);
      return exitOf(await attempt(() => box.ended(request.execId, context.signal)));
    },
  };
  return methods;
}

async function attempt<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (fault) {
    throw translated(fault);
  }
}

/** A worker that is gone looks to its clients like one that cannot be reached. */
function translated(fault: unknown): unknown {
  if (fault instanceof SupervisorRefused) {
    const status = fault.reason === 'not_found' ? Status.NOT_FOUND : Status.FAILED_PRECONDITION;
    return new ServerError(status, fault.message);
  }
  // Without clones of disks there are no snapshots here, however often they are asked for.
  if (fault instanceof DriverRefused)
    return new ServerError(Status.FAILED_PRECONDITION, fault.message);
  if (fault instanceof SandboxError) return new ServerError(Status.UNAVAILABLE, fault.message);
  return fault;
}

function exitOf(exec: ExecState): { readonly code?: number; readonly signal?: number } {
  if (!hasEnded(exec)) return {};
  if (exec.outcome.kind === 'exited') return { code: exec.outcome.code };
  if (exec.outcome.kind === 'signalled') return { signal: exec.outcome.signal };
  return { code: 127 };
}
