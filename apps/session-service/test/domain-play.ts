import type { Report } from '@vmux/events';
import { exists, type Session } from '../src/domain/state';
import type { Step } from './domain-arbitraries';
import type { Message } from './domain-spec';
import { World } from './domain-world';

/** The world after these steps; `after` sees it after each of them. */
export function played(create: Message, steps: readonly Step[], after = (_: World) => {}): World {
  const world = new World();
  world.deliver(create);
  for (const step of steps) {
    take(world, step);
    after(world);
  }
  return world;
}

function take(world: World, step: Step): void {
  switch (step.kind) {
    case 'command':
      world.deliver({ ...step.command, at: world.now });
      return;
    case 'report':
      world.deliver(about(step, world.session));
      return;
    case 'repeat': {
      const { effective } = world;
      const message = effective[step.pick % effective.length];
      if (message) world.deliver(message);
      return;
    }
    case 'serve':
      world.serve(step.pick);
      return;
    case 'finish':
      world.finish(step.pick);
      return;
    case 'attend':
      world.attend();
      return;
    case 'wait':
      world.now += step.ms;
  }
}

function about(step: Extract<Step, { kind: 'report' }>, session: Session): Report {
  if (step.about === 'any' || !exists(session)) return step.report;
  const sandbox = step.about === 'current' ? session.current : session.pending;
  if (!sandbox) return step.report;
  const { epoch, runnerId } = sandbox;
  const instance = 'instance' in sandbox ? sandbox.instance : `i-${epoch}`;
  return { ...step.report, epoch, runnerId, instance };
}
