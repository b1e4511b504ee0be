import type { Exit, RunningProcess } from './process';

/** A server that a test can kill and start again on the same port with the same data. */
export interface Server {
  readonly pid: number;
  output(): string;
  /** SIGKILL, as a crash would: nothing is flushed by the server itself. */
  kill(signal?: NodeJS.Signals): Promise<Exit>;
  /** Starts it again on the same port and data; kills it first when it runs. */
  restart(): Promise<void>;
  stop(): Promise<Exit>;
}

export function server<Ready>(
  first: RunningProcess<Ready>,
  again: () => Promise<RunningProcess<Ready>>,
): Server {
  let running = first;
  return {
    get pid() {
      return running.pid;
    },
    output: () => running.output(),
    kill: (signal = 'SIGKILL') => running.kill(signal),
    restart: async () => {
      await running.kill('SIGKILL');
      running = await again();
    },
    stop: () => running.stop(),
  };
}
