/**
 * Named points between the steps of a verb, found in the program as it is: what is here wraps its methods and
 * changes nothing in it. Only the module that a point is in is loaded.
 */
type Pass = (point: string) => void;
type Method = (...given: never[]) => unknown;
type Class = { readonly prototype: object };

interface Point {
  readonly when: 'before' | 'after';
  readonly of: () => Class;
  readonly method: string;
}

const CHECKPOINTS = () => require('../../libs/runner-kit/src/work/checkpoints').Checkpoints;
const DISKS = () => require('../../apps/runner-local/src/drivers/ns-checkpoint-store').NsDisks;
const NS = () => require('../../apps/runner-local/src/drivers/ns-driver').NsDriver;
const DOCKER = () => require('../../apps/runner-local/src/drivers/docker-driver').DockerDriver;
const LAYERS = () => require('../../apps/runner-local/src/drivers/docker-layers').DockerLayers;
const JOURNAL = () => require('../../libs/runner-kit/src/work/runner-journal').RunnerJournal;
const CHUNKS = () => require('../../libs/artifacts/src/chunk-directory').ChunkDirectory;
const HISTORY = () =>
  require('../../apps/session-service/src/application/session-history').SessionHistory;
const WRITING = () => require('../../apps/session-service/src/application/log-writing').LogWriting;
const ERRANDS = () => require('../../apps/session-service/src/application/errands').Errands;

const POINTS: Readonly<Record<string, Point>> = {
  /** It stands still, and nothing of it is kept. */
  'checkpoint-standing': { when: 'before', of: DISKS, method: 'keep' },
  /** Kept, and it still stands still. */
  'checkpoint-cloned': { when: 'after', of: DISKS, method: 'keep' },
  'checkpoint-taken': { when: 'after', of: CHECKPOINTS, method: 'take' },
  'archive-storing': { when: 'before', of: CHUNKS, method: 'sync' },
  'archive-made': { when: 'after', of: CHECKPOINTS, method: 'archive' },
  /** There is a disk, and nothing that uses it. */
  'restore-disk-made': { when: 'after', of: DISKS, method: 'add' },
  'restore-created': { when: 'after', of: CHECKPOINTS, method: 'create' },
  'restore-filled': { when: 'after', of: CHECKPOINTS, method: 'restore' },
  'restore-journalled': { when: 'after', of: JOURNAL, method: 'recordPrepared' },
  frozen: { when: 'after', of: NS, method: 'suspend' },
  thawed: { when: 'after', of: NS, method: 'resume' },
  destroyed: { when: 'after', of: NS, method: 'destroy' },
  /** There is a container, and the runner has not noted whose. */
  'container-made': { when: 'after', of: DOCKER, method: 'make' },
  'container-frozen': { when: 'after', of: DOCKER, method: 'suspend' },
  'container-thawed': { when: 'after', of: DOCKER, method: 'resume' },
  'container-removed': { when: 'after', of: DOCKER, method: 'destroy' },
  /** An image holds the checkpoint, and nobody was told. */
  'layers-kept': { when: 'after', of: LAYERS, method: 'keep' },
  /** Nothing more is taken into the log, and the history does not say why. */
  'log-closed': { when: 'after', of: WRITING, method: 'close' },
};

/** `appending-<event>` and `appended-<event>` in the session service, `ordered-<order>` after it was sent. */
const TYPED = /^(appending|appended|ordered)-/;

/** Once for each: a process may be told of several points, one after the other. */
const wrapped = new Set<string>();

export function passBetweenSteps(point: string, pass: Pass): void {
  const what = TYPED.test(point) ? (point.startsWith('ordered-') ? 'ordered' : 'append') : point;
  if (wrapped.has(what)) return;
  wrapped.add(what);
  const known = POINTS[point];
  if (known)
    wrap(known.of(), known.method, {
      before: () => known.when === 'before' && pass(point),
      after: () => known.when === 'after' && pass(point),
    });
  if (!TYPED.test(point)) return;
  if (point.startsWith('ordered-'))
    wrap(ERRANDS(), 'send', { after: ([order]) => pass(`ordered-${typeOf(order)}`) });
  else
    wrap(HISTORY(), 'append', {
      before: ([, , events]) => passEach(events, 'appending', pass),
      after: ([, , events]) => passEach(events, 'appended', pass),
    });
}

const typeOf = (value: unknown): string =>
  typeof value === 'object' && value !== null && 'type' in value ? String(value.type) : '';

function passEach(events: unknown, step: string, pass: Pass): void {
  if (Array.isArray(events)) for (const event of events) pass(`${step}-${typeOf(event)}`);
}

/** The runner is told of each new sandbox of a session called brief-… that its provider will end it. */
export function makeBrief(lifetimeMs: number): void {
  const { prototype } = NS() as { prototype: { onEnding?: unknown } };
  let tell: (id: { sessionId: string }, endsAtMs: number) => void = () => undefined;
  prototype.onEnding = (listener: typeof tell) => {
    tell = listener;
  };
  const created = ([spec]: readonly unknown[]) => {
    const { id } = spec as { id: { sessionId: string } };
    if (!id.sessionId.startsWith('brief-')) return;
    // Nobody listens to a sandbox that has not been reported ready.
    setTimeout(() => tell(id, Date.now() + lifetimeMs), lifetimeMs / 4);
  };
  for (const method of ['create', 'restore']) wrap(NS(), method, { after: created });
}

interface Around {
  before?(given: readonly unknown[]): unknown;
  after?(given: readonly unknown[]): unknown;
}

function wrap({ prototype }: Class, name: string, around: Around): void {
  const own = Object.getOwnPropertyDescriptor(prototype, name)?.value as Method | undefined;
  if (!own) throw new Error(`there is no method ${name} any more: name another point`);
  Object.defineProperty(prototype, name, {
    configurable: true,
    writable: true,
    async value(this: unknown, ...given: never[]) {
      around.before?.(given);
      const result = await own.apply(this, given);
      around.after?.(given);
      return result;
    },
  });
}
