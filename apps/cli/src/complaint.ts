import { VmuxError } from '@vmux/sdk';
import { Failure } from './failure';
import { visible } from './terminal/escape';

/** What to do about a refusal, for somebody at a terminal; the API's own hints speak of its endpoints. */
const hints: Readonly<Record<string, string>> = {
  unauthorized: 'check VMUX_API_KEY, or log in again: vmux login',
  forbidden: 'use a key that has the scope: vmux keys',
  session_not_found: 'see: vmux ps -a',
  session_deleted: 'see: vmux ps -a',
  session_ended: 'make a new one: vmux run',
  exec_not_found: 'see: vmux history SESSION',
  file_not_found: 'look with: vmux exec SESSION -- ls -la',
  file_forbidden: 'choose another path, or another user with --user',
  file_no_space: 'make room in the session, or run one with a larger disk',
  no_space: 'the disk of the server is full: make room (vmux status says where its data is)',
  no_placement: 'see what there is: vmux status; what is missing: vmux doctor',
  not_supported: 'see what there is: vmux status',
  quota_exceeded: 'stop some: vmux ps, vmux stop SESSION',
  not_running: 'see: vmux inspect SESSION',
  no_terminal: 'attach to its shell: vmux attach SESSION',
  port_refused: 'nothing listens on it: vmux ports SESSION',
  runner_unreachable: 'see: vmux status',
  body_too_large: 'send less: .vmuxignore leaves files out, --no-bundle sends nothing',
  rate_limited: 'wait a moment and try again',
};

const systemHints: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full: make room, or set VMUX_DATA_DIR to a directory elsewhere',
  EDQUOT: 'your share of the disk is full: make room, or set VMUX_DATA_DIR elsewhere',
  EACCES: 'you may not do that here: check who owns it',
  EROFS: 'it cannot be written to: choose another place',
};

/** What is not ours is shown escaped. */
export function explained(fault: unknown): string {
  const message = fault instanceof Error ? fault.message : String(fault);
  const hint = hintOf(fault);
  const shown = message.split('\n').map(visible).join('\n');
  const trace = process.env.VMUX_DEBUG && fault instanceof Error ? `\n${fault.stack}` : '';
  return `${shown}${hint ? `; ${visible(hint)}` : ''}${trace}`;
}

function hintOf(fault: unknown): string | null {
  if (fault instanceof VmuxError) return hints[fault.code] ?? fault.hint;
  if (fault instanceof Failure) return fault.hint;
  const { code } = fault as NodeJS.ErrnoException;
  return (code && systemHints[code]) || null;
}
