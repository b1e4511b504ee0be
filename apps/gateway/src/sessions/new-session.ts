import { givenName, nameOfDirectory, type Resources } from '@vmux/events';
import type { NewSession } from '../application/session-commands';
import { ApiError } from '../http/api-error';
import type { CreateSessionDto, PolicyDto, ResourcesDto } from './create-session.dto';

const GIB = 1024 * 1024 * 1024;
const TEN_MINUTES_MS = 10 * 60_000;

/** Of this installation. */
export interface SessionDefaults {
  readonly defaultProvider: string;
  /** Hosts beside the public internet that sessions may ask for, by name; `*` for any. */
  readonly allowedHosts: readonly string[];
}

/** From what the request says, with what it leaves out. */
export function newSessionFrom(
  dto: CreateSessionDto,
  { defaultProvider, allowedHosts }: SessionDefaults,
): NewSession {
  if (dto.allowHosts?.length && !dto.egress)
    throw new ApiError(
      'invalid_request',
      'allowHosts adds to egress, which is off',
      'set egress to true',
    );
  const refused = (dto.allowHosts ?? []).find((host) => !isAllowed(host, allowedHosts));
  if (refused !== undefined)
    throw new ApiError(
      'invalid_request',
      `sessions here may not reach ${refused}`,
      'ask whoever runs this gateway to name it in VMUX_ALLOW_HOSTS',
    );
  return {
    name: dto.name === undefined ? nameOfDirectory(dto.directory ?? '') : givenName(dto.name),
    provider: dto.provider ?? defaultProvider,
    env: dto.env ?? null,
    body: dto,
    spec: {
      image: dto.image ?? null,
      ...(dto.build?.length ? { build: dto.build } : {}),
      resources: resourcesFrom(dto.resources ?? {}),
      cwd: dto.cwd ?? null,
      user: dto.user ?? null,
      bundle: dto.bundle ?? null,
      setup: dto.setup ?? (dto.bundle === undefined ? 'none' : 'auto'),
      ports: dto.ports ?? [],
      egress: dto.egress ?? false,
      allowHosts: dto.allowHosts ?? [],
      labels: dto.labels ?? {},
      policy: policyFrom(dto.policy ?? {}),
      log: {
        budgetBytes: dto.log?.budgetBytes ?? GIB,
        whenFull: dto.log?.whenFull ?? 'truncate',
      },
    },
  };
}

const isAllowed = (host: string, allowed: readonly string[]): boolean =>
  allowed.includes('*') || allowed.includes(host.toLowerCase());

/** What is named is needed: a provider that cannot hold a sandbox to it refuses. */
function resourcesFrom({ cpus, memoryMiB, diskMiB, pids, gpu }: ResourcesDto): Resources {
  const needsLimits = [
    ...(memoryMiB === undefined ? [] : (['memoryLimit'] as const)),
    ...(cpus === undefined ? [] : (['cpuLimit'] as const)),
    ...(pids === undefined ? [] : (['pidsLimit'] as const)),
  ];
  return {
    cpus: cpus ?? 1,
    memoryMiB: memoryMiB ?? 1024,
    diskMiB: diskMiB ?? 10_240,
    pids: pids ?? 1024,
    gpu: gpu ?? null,
    ...(diskMiB === undefined ? {} : { needsDiskLimit: true }),
    ...(needsLimits.length === 0 ? {} : { needsLimits }),
  };
}

const policyFrom = (policy: PolicyDto) => ({
  idleTimeoutMs: policy.idleTimeoutMs ?? TEN_MINUTES_MS,
  keepMs: policy.keepMs ?? null,
  maxRuntimeMs: policy.maxRuntimeMs ?? null,
  rehydrate: policy.rehydrate ?? ('on_demand' as const),
  lostAfterMs: policy.lostAfterMs ?? null,
  checkpointEveryMs: policy.checkpointEveryMs ?? null,
  stopGraceMs: policy.stopGraceMs ?? 10_000,
});
