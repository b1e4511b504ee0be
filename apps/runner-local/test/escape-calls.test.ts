import { describeUnless } from '@vmux/testing';
import { NsDriver } from '../src/drivers/ns-driver';
import { hostileCalls } from './escape-kernel';
import { isRoot, nsOptions } from './ns-target';

hostileCalls(
  'a hostile workload that calls the kernel',
  () => {
    const options = nsOptions();
    const driver = new NsDriver(options);
    return { driver, options, isRootless: false, hasOneId: false, canaryOwner: 0 };
  },
  describeUnless(isRoot, 'namespaces with mapped ids need root on Linux'),
);
