import type { SandboxId } from '@vmux/runner-kit';

/** Ours, inside the sandbox; never part of a portable checkpoint. */
const OURS = '/.vmux';
const SUPERVISOR = `${OURS}/supervisor`;
const SOCKET = `${OURS}/socket`;
/** Without a runner for this long the supervisor ends, and with it what the GPU costs. */
const LEASE_SECONDS = 3600;
/** Nor does it wait for a supervisor that nobody puts in place any more: its maker is gone. */
const PLACED_WITHIN_MS = 600_000;
const LOOK_MS = 50;

/**
 * The entry point waits for the supervisor to be put in place and becomes it. Modal has no limit for
 * processes: the shell's own is set, for what it is worth there. A snapshot's image brings the spool of
 * another sandbox along; it is foreign and removed.
 */
export function bootCommand(
  { epoch, instance }: SandboxId,
  pids: number,
  sinceNs: bigint | undefined,
  placedWithinMs = PLACED_WITHIN_MS,
): readonly string[] {
  const since = sinceNs === undefined ? '' : ` --since-ns=${sinceNs}`;
  const script = [
    `rm -rf ${OURS}`,
    `mkdir -m 700 ${OURS}`,
    `: > ${cleared(instance)}`,
    `looks=${Math.ceil(placedWithinMs / LOOK_MS)}`,
    `until [ -x ${SUPERVISOR} ] || [ $looks = 0 ]; do sleep 0.05 || sleep 1; looks=$((looks - 1)); done`,
    `ulimit -u ${pids} 2>/dev/null || ulimit -p ${pids} 2>/dev/null`,
    `exec ${SUPERVISOR} run --listen=${SOCKET} --spool=${OURS}/spool --epoch=${epoch} --instance=${instance} --lease-seconds=${LEASE_SECONDS}${since}`,
  ].join('; ');
  return ['sh', '-c', script];
}

/** Takes the program from its input, once what a snapshot brought is gone; in place only when it is whole. */
export const uploadCommand = ({ instance }: SandboxId): readonly string[] => [
  'sh',
  '-c',
  `until [ -e ${cleared(instance)} ]; do sleep 0.05; done; cat > ${SUPERVISOR}.part && chmod 555 ${SUPERVISOR}.part && mv ${SUPERVISOR}.part ${SUPERVISOR}`,
];

const cleared = (instance: string): string => `${OURS}/cleared-for-${instance}`;

export const PIPE_COMMAND = [SUPERVISOR, 'pipe', `--socket=${SOCKET}`];
export const BRIDGE_COMMAND = [SUPERVISOR, 'bridge', `--socket=${SOCKET}`];
