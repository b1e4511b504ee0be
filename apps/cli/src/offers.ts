import type { Vmux } from '@vmux/sdk';
import { Failure } from './failure';
import { nearest } from './suggest';

/** What runners say of a provider. */
export interface Offer {
  readonly provider: string;
  readonly available: boolean;
  /** Acted out on a machine of one's own. */
  readonly emulated: boolean;
  /** Why it is not available. */
  readonly reason: string | null;
}

interface Runners {
  readonly runners: readonly { readonly alive: boolean; readonly providers: readonly Offer[] }[];
}

/** Of the runners that are heard of; each provider once, available if one of them has it. */
export async function offersOf(vmux: Vmux): Promise<readonly Offer[]> {
  const { runners } = await vmux.call<Runners>('GET', '/v1/runners');
  const all = runners.filter(({ alive }) => alive).flatMap(({ providers }) => providers);
  const names = [...new Set(all.map(({ provider }) => provider))];
  return names.flatMap((name) => {
    const same = all.filter(({ provider }) => provider === name);
    return same.find(({ available }) => available) ?? same.slice(0, 1);
  });
}

/** Wherever a provider shows. */
export const labelled = ({ provider, emulated }: Pick<Offer, 'provider' | 'emulated'>): string =>
  emulated ? `${provider} (emulated)` : provider;

/** Says at once that a provider is not there, rather than waiting for it. */
export async function checkProvider(vmux: Vmux, provider: string): Promise<Offer | undefined> {
  const offers = await offersOf(vmux);
  // Where nobody has been heard of yet, somebody may still come.
  if (offers.length === 0) return undefined;
  const offer = offers.find((each) => each.provider === provider);
  if (offer?.available) return offer;
  const names = offers.filter(({ available }) => available).map((each) => each.provider);
  const here = names.length > 0 ? `available: ${names.join(', ')}` : 'none is available';
  if (offer)
    throw new Failure(
      `the provider ${provider} is not available: ${offer.reason ?? 'its runner does not say why'}`,
      `${here}; see: vmux doctor`,
    );
  const meant = nearest(provider, names);
  throw new Failure(
    `no runner offers the provider "${provider}"${meant ? `: did you mean ${meant}?` : ''}`,
    `${here}; see: vmux status`,
  );
}
