import type { NewExec } from '../application/session-commands';
import { ApiError } from '../http/api-error';
import type { IssueExecDto } from './exec.dto';

/** From what the request says, with what it leaves out. */
export function newExecFrom(dto: IssueExecDto): NewExec {
  return {
    env: dto.env ?? null,
    body: dto,
    spec: {
      command: commandOf(dto),
      cwd: dto.cwd ?? null,
      user: dto.user ?? null,
      pty: dto.pty ? { cols: dto.pty.cols, rows: dto.pty.rows } : null,
      stdin: dto.stdin ?? false,
      timeoutMs: dto.timeoutMs ?? null,
      keepsAwake: dto.keepsAwake ?? true,
      purpose: dto.purpose ?? (dto.service ? 'service' : 'user'),
      service: dto.service
        ? { name: dto.service.name, restart: dto.service.restart ?? true }
        : null,
    },
  };
}

function commandOf({ command, argv }: IssueExecDto): NewExec['spec']['command'] {
  if ((command === undefined) === (argv === undefined))
    throw new ApiError('invalid_request', 'give exactly one of command and argv');
  return argv ? { kind: 'argv', argv } : { kind: 'shell', line: command ?? '' };
}
