import { describeUnless } from '@vmux/testing';
import { NsDriver } from '../src/drivers/ns-driver';
import { hostileWorkload } from './escape-workload';
import { isRoot, nsOptions } from './ns-target';

hostileWorkload(
  'a hostile workload as root of an ns sandbox',
  () => {
    const options = nsOptions();
    const driver = new NsDriver(options);
    return { driver, options, isRootless: false, hasOneId: false, canaryOwner: 0 };
  },
  describeUnless(isRoot, 'namespaces with mapped ids need root on Linux'),
);
