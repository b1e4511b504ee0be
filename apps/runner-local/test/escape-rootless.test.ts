import { describeUnless } from '@vmux/testing';
import { hostileCalls } from './escape-kernel';
import type { EscapeTarget } from './escape-tools';
import { hostileWorkload } from './escape-workload';
import { RootlessDriver } from './rootless-driver';
import {
  hasIdTools,
  type OtherUser,
  rootlessOptions,
  whyNotRootless,
  withLentIds,
  withOneId,
} from './rootless-target';

const why = whyNotRootless(withOneId);

function target(user: OtherUser): EscapeTarget {
  const options = rootlessOptions(user);
  const driver = new RootlessDriver(options, user);
  return {
    driver,
    options,
    isRootless: true,
    hasOneId: user.etc === null,
    // What the runner's own user may read is what it could give away.
    canaryOwner: user.uid,
  };
}

hostileWorkload(
  'a hostile workload in an ns sandbox that was made without root, with a single id',
  () => target(withOneId()),
  describeUnless(why === '', why),
);

hostileWorkload(
  'a hostile workload in an ns sandbox that was made without root, with lent ids',
  () => target(withLentIds()),
  describeUnless(why === '' && hasIdTools, why || 'newuidmap is not installed'),
);

hostileCalls(
  'a hostile workload that calls the kernel in an ns sandbox that was made without root',
  () => target(withOneId()),
  describeUnless(why === '', why),
);
