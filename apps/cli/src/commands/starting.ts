import type { HistoryEvent, Sandbox } from '@vmux/sdk';
import { StatusLine } from '../terminal/status-line';

/** Shows how far a session has come until its command runs, to somebody who watches. */
export function showStarting(sandbox: Sandbox, execId: string): () => void {
  const stop = new AbortController();
  if (!process.stderr.isTTY) return () => undefined;
  const line = new StatusLine();
  const over = () => {
    stop.abort();
    line.clear();
  };
  const began = Date.now();
  let stage = 'starting';
  const tick = () => line.show(`${stage} … ${Math.round((Date.now() - began) / 1000)} s`);
  // Nothing flickers where everything is there already.
  const timer = setInterval(tick, 500);
  stop.signal.addEventListener('abort', () => clearInterval(timer));
  const watch = async () => {
    for await (const event of sandbox.history({ follow: true, signal: stop.signal })) {
      stage = stageOf(event) ?? stage;
      const { execId: id } = event.data;
      if (id === execId && /^Exec(Started|Exited|OutcomeUnknown)$/.test(event.type)) return over();
    }
  };
  // Only shown: what goes wrong is told by whoever waits for the command.
  watch().catch(over);
  return over;
}

function stageOf({ type, data }: HistoryEvent): string | null {
  if (type === 'SandboxRequested') return 'making a sandbox';
  if (type === 'SandboxStarted') return 'the sandbox runs';
  if (type === 'StageReached') return String(data.stage).replaceAll('_', ' ');
  if (type === 'SetupDetected') return 'installing what the directory needs';
  return null;
}
