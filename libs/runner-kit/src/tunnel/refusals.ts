import { getSystemErrorName } from 'node:util';
import { type RefusedFacts, TunnelRefused } from '@vmux/tunnel';
import { SandboxError, SupervisorRefused } from '../errors';
import { WorkerStopped } from '../work/sandbox-worker';

/** What a sandbox's fault means to whoever opened the stream. Anything else is a fault of this runner. */
export function refusalOf(fault: unknown, about: 'exec' | 'file' | 'port'): unknown {
  if (fault instanceof SupervisorRefused) return ofSupervisor(fault, about);
  if (fault instanceof SandboxError && fault.next === 'lost')
    return new TunnelRefused('stale_sandbox', 'the sandbox is gone');
  if (fault instanceof SandboxError || fault instanceof WorkerStopped)
    return new TunnelRefused('interrupted', 'the connection to the sandbox broke');
  return fault;
}

function ofSupervisor(refused: SupervisorRefused, about: 'exec' | 'file' | 'port'): TunnelRefused {
  const { reason, errno, detail, message } = refused;
  const say = (code: TunnelRefused['code'], facts: RefusedFacts = {}) =>
    new TunnelRefused(code, message, facts);
  switch (reason) {
    case 'not_found':
      return about === 'exec' ? say('exec_not_found') : say('file_error', { errno: 'ENOENT' });
    case 'ended':
      return say('exec_ended');
    case 'gap':
      return say('input_gap', { expected: detail });
    case 'stale_writer':
      return say('stale_writer', { smallest: detail });
    case 'no_stdin':
      return say('no_stdin');
    case 'no_terminal':
      return say('no_terminal');
    case 'system':
      return about === 'port'
        ? say('port_refused', { errno: errnoName(errno) })
        : say('file_error', { errno: errnoName(errno) });
    case 'range':
      return say('file_error', { errno: 'ERANGE', size: detail });
    case 'unsafe':
      return say('archive_unsafe');
    case 'limit':
      return say('limit');
    case 'stopping':
    case 'read_only':
      return say('stopping');
    case 'running':
    case 'gone':
    case 'invalid':
      return say('invalid');
    case 'malformed':
    case 'version':
    case 'mismatch':
      return say('internal');
  }
}

function errnoName(errno: number): string {
  if (errno < 1 || errno > 4095) return 'EIO';
  return getSystemErrorName(-errno);
}
