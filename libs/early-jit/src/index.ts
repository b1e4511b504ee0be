import { setFlagsFromString } from 'node:v8';

/**
 * To be imported first by a process that serves. A command passes through a great many small functions once each: by
 * V8's own measure they become worth compiling after some thousand commands, by this one after some hundred.
 */
setFlagsFromString('--no-lazy-feedback-allocation');
setFlagsFromString('--interrupt-budget=20000');
