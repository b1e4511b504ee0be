/**
 * Loaded into a process of the stack before its own code, by tests alone.
 * VMUX_CLOCK_SHIFT_MS moves its clock. VMUX_CRASH_AT=<point>:<n> ends it at the n-th passing of a point:
 * before-answer (done, and nobody was told), after-answer (told, and nothing was made of it), before-sync
 * and after-sync (of the event store's log), and those of crash-points.ts, between the steps of a verb.
 * VMUX_CRASH_FILE names a file that says the same to a process that runs already, whenever it gets SIGUSR2;
 * nothing in it calls it off. What is reached is told in <file>.reached.
 * VMUX_BRIEF_SANDBOXES_MS lets the runner's sandboxes whose session is called brief-… be ended by their
 * provider after that time, as far as they are told.
 */
import fs from 'node:fs';
import { MsgImpl } from 'nats/lib/nats-base-client/msg';
import { NatsConnectionImpl } from 'nats/lib/nats-base-client/nats';
import { makeBrief, passBetweenSteps } from './crash-points';

const crashFile = process.env.VMUX_CRASH_FILE;
let point = '';
let left = 0;

function arm(wanted: string): void {
  const [name = '', times = '1'] = wanted.trim().split(':');
  point = name;
  left = Number(times);
  if (name !== '') passBetweenSteps(name, pass);
}

/** From when it says that it is ready: whoever starts it waits for that. */
let isReady = false;
const { write } = process.stdout;
process.stdout.write = ((...given: Parameters<typeof write>) => {
  isReady ||= String(given[0]).includes('"ready":true');
  return write.apply(process.stdout, given);
}) as typeof write;

function pass(name: string): void {
  if (name !== point || !isReady) return;
  left -= 1;
  if (left !== 0) return;
  if (crashFile) fs.appendFileSync(`${crashFile}.reached`, `${name}\n`);
  process.kill(process.pid, 'SIGKILL');
}

function shiftClock(byMs: number): void {
  const RealDate = Date;
  const now = () => RealDate.now() + byMs;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, given) =>
      Reflect.construct(target, given.length === 0 ? [now()] : given) as Date,
    get: (target, name, receiver) => (name === 'now' ? now : Reflect.get(target, name, receiver)),
  });
}

const shiftMs = Number(process.env.VMUX_CLOCK_SHIFT_MS ?? 0);
if (shiftMs !== 0) shiftClock(shiftMs);

const briefMs = Number(process.env.VMUX_BRIEF_SANDBOXES_MS ?? 0);
if (briefMs > 0) makeBrief(briefMs);

arm(process.env.VMUX_CRASH_AT ?? '');
if (crashFile) process.on('SIGUSR2', () => arm(fs.readFileSync(crashFile, 'utf8')));

if (point || crashFile) {
  const { respond } = MsgImpl.prototype;
  MsgImpl.prototype.respond = function (...given: Parameters<typeof respond>) {
    pass('before-answer');
    return respond.apply(this, given);
  };
  const { request } = NatsConnectionImpl.prototype;
  NatsConnectionImpl.prototype.request = async function (...given: Parameters<typeof request>) {
    const answer = await request.apply(this, given);
    // What JetStream answers is no acknowledgement of ours.
    if (/^vmux\.(commands|reports)\./.test(String(given[0]))) pass('after-answer');
    return answer;
  };
  const { fdatasync } = fs;
  fs.fdatasync = Object.assign((fd: number, done: fs.NoParamCallback) => {
    pass('before-sync');
    fdatasync(fd, (fault) => {
      pass('after-sync');
      done(fault);
    });
  }, fdatasync);
}
