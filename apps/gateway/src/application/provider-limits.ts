import { Refusal, type Resources } from '@vmux/events';
import { instanceTypeFor } from '../../../../workers/cloudflare/src/instance-types';

/** Refuses, before anything is made, what a provider never has; the runner refuses it too. */
export function expectFits(provider: string, resources: Resources): void {
  if (provider !== 'cloudflare') return;
  const type = instanceTypeFor(resources);
  if ('refused' in type) throw new Refusal('not_supported', type.refused, { provider });
}
