import { type Heartbeat, Refusal, type Resources, type SessionSpec } from '@vmux/events';
import { instanceTypeFor } from '../../../../workers/cloudflare/src/instance-types';
import type { RunnerBoard } from './runner-board';

/** Refuses, before anything is made, what a provider never has; the runner refuses it too. */
export function expectFits(provider: string, resources: Resources): void {
  if (provider !== 'cloudflare') return;
  const type = instanceTypeFor(resources);
  if ('refused' in type) throw new Refusal('not_supported', type.refused, { provider });
}

/** A kind of GPU that its provider has, as many as one sandbox may have; nobody may have said which. */
export function expectGpu(board: RunnerBoard, provider: string, gpu: string | null): void {
  const offered = offersOf(board, provider).flatMap(({ gpus }) => (gpus ? [gpus] : []));
  if (gpu === null || offered.length === 0) return;
  const [, name = '', count = '1'] = /^([^:]+)(?::(\d{1,3}))?$/.exec(gpu) ?? [];
  const most = Math.max(...offered.map((gpus) => gpus[name.toUpperCase()] ?? 0));
  if (Number(count) >= 1 && Number(count) <= most) return;
  const known = [...new Set(offered.flatMap(Object.keys))];
  const message =
    most > 0
      ? `a sandbox on ${provider} has 1 to ${most} of ${name}, not ${count}`
      : `${provider} has no GPU "${gpu}": choose one of ${known.join(', ')}`;
  throw new Refusal('not_supported', message, { provider, gpus: known });
}

/** What would be refused when it is placed. */
export function expectCapable(
  board: RunnerBoard,
  provider: string,
  { resources, build }: Pick<SessionSpec, 'resources' | 'build'>,
): void {
  const needs = [
    ...(resources.gpu === null ? [] : (['gpu'] as const)),
    ...(build?.length ? (['build'] as const) : []),
  ];
  const offers = offersOf(board, provider);
  if (offers.length === 0)
    throw new Refusal('no_placement', `no runner offers ${provider} now: start one`, { provider });
  for (const capability of needs)
    if (!offers.some(({ capabilities }) => capabilities.includes(capability)))
      throw new Refusal('not_supported', `${provider} has no ${capability} here`, {
        provider,
        capability,
      });
}

const offersOf = (board: RunnerBoard, wanted: string): Heartbeat['providers'] =>
  board
    .list()
    .filter(({ alive }) => alive)
    .flatMap(({ heartbeat }) => heartbeat.providers)
    .filter(({ provider, available }) => available && provider === wanted);
