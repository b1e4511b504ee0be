import type { HistoryEvent, Sandbox, SandboxMaking } from '@vmux/sdk';
import { whisper } from '../terminal/output';
import { StatusLine } from '../terminal/status-line';

const LOOK_EVERY_MS = 1_000;
const MAX_DETAIL = 100;

export interface Watching {
  /** The command has begun: nothing is shown of how far it has come. */
  begun(): void;
  stop(): void;
}

/** Shows how far a session has come until its command runs, and the ports that open, to who watches. */
export function watching(sandbox: Sandbox, execId: string, declared: readonly number[]): Watching {
  if (!process.stderr.isTTY) return { begun: () => undefined, stop: () => undefined };
  const over = new AbortController();
  const line = new StatusLine();
  const startedAt = Date.now();
  let stage = 'starting';
  let making: string | null = null;
  const tick = () =>
    line.show(`${making ?? stage} … ${Math.round((Date.now() - startedAt) / 1000)} s`);
  // Nothing flickers where everything is there already.
  const timer = setInterval(tick, 500);
  const look = async () => {
    const info = await sandbox.info();
    making = info.making ? makingText(info.making) : null;
  };
  // What is still being made is in no history.
  const looking = setInterval(() => void look().catch(() => undefined), LOOK_EVERY_MS);
  const begun = () => {
    clearInterval(timer);
    clearInterval(looking);
    line.clear();
  };
  const stop = () => {
    over.abort();
    begun();
  };
  const watch = async () => {
    for await (const event of sandbox.history({ follow: true, signal: over.signal })) {
      stage = stageOf(event) ?? stage;
      const { type, data } = event;
      if (data.execId === execId && type === 'ExecStarted') begun();
      if (type === 'PortOpened' && typeof data.port === 'number' && !declared.includes(data.port))
        await whisper(`port ${data.port} is open: vmux open ${sandbox.id} ${data.port}`);
    }
  };
  // Only shown: what goes wrong is told by whoever waits for the command.
  watch().catch(stop);
  return { begun, stop };
}

/** In one line, whatever a provider says. */
const makingText = ({ stage, detail }: SandboxMaking): string =>
  detail?.trim().split('\n').at(-1)?.slice(-MAX_DETAIL) || stage;

function stageOf({ type, data }: HistoryEvent): string | null {
  if (type === 'SandboxRequested') return 'making a sandbox';
  if (type === 'SandboxStarted') return 'the sandbox runs';
  if (type === 'SetupDetected') return 'installing what the directory needs';
  // The other stages are told once the sandbox runs: they say nothing of what is under way.
  if (type === 'StageReached' && data.stage === 'installed') return 'starting the command';
  return null;
}
