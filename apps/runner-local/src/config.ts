import { join } from 'node:path';
import { type RunnerConfig, runnerConfigFrom } from '@vmux/runner-kit';

export interface Config extends RunnerConfig {
  readonly supervisorFile: string;
  readonly launcherFile: string;
  /** For docker sessions that name none. */
  readonly dockerImage: string;
  /** Whether sessions may ask for the public internet; the first that does changes the host's firewall. */
  readonly egress: boolean;
  /** Offers sessions as plain processes, which isolates nothing. */
  readonly plainProcesses: boolean;
}

/** Reads every setting once; says what to set when one is missing or wrong. */
export function configFrom(env: NodeJS.ProcessEnv): Config {
  const config = runnerConfigFrom(env, { runnerId: 'local', maxSandboxes: 256 });
  return {
    ...config,
    supervisorFile: join(config.nativeDir, 'vmux-supervisor'),
    launcherFile: join(config.nativeDir, 'vmux-ns'),
    dockerImage: env.VMUX_DOCKER_IMAGE || 'nikolaik/python-nodejs:python3.12-nodejs22',
    egress: egressFrom(env),
    plainProcesses: env.VMUX_PLAIN_PROCESSES === 'isolate-nothing',
  };
}

function egressFrom(env: NodeJS.ProcessEnv): boolean {
  const said = env.VMUX_EGRESS || 'on';
  if (said !== 'on' && said !== 'off')
    throw new Error('set VMUX_EGRESS to on, so that sessions may ask for the internet, or to off');
  return said === 'on';
}
