import { RunnerSandbox } from './runner-sandbox';

/** What is deployed: one class for each instance type, since a container's size belongs to its class. */
export { ContainerProxy, default, Registry } from './worker';
export class SandboxLite extends RunnerSandbox {}
export class SandboxBasic extends RunnerSandbox {}
export class SandboxStandard1 extends RunnerSandbox {}
export class SandboxStandard2 extends RunnerSandbox {}
export class SandboxStandard3 extends RunnerSandbox {}
export class SandboxStandard4 extends RunnerSandbox {}
