import { noNames, parsed } from '../arguments';
import { endForwards } from '../background-forwards';
import { dataPathOf } from '../stack/data-directory';
import { endProcess } from '../stack/process-identity';
import { runningStack } from '../stack/stack-record';
import { jsonText } from '../terminal/escape';
import { print } from '../terminal/output';

const graceMs = 60_000;

/** Ends the embedded stack. Sandboxes go on and are taken up again by the next one. */
export async function down(args: readonly string[]): Promise<number> {
  const given = parsed('down', args, { json: { type: 'boolean' } });
  noNames(given, 'down');
  const tell = (line: string) => print(given.has('json') ? jsonText({ running: false }) : line);
  const stack = runningStack(dataPathOf(process.env));
  await endForwards();
  if (!stack) {
    await tell('no stack runs here');
    return 0;
  }
  await endProcess(stack, graceMs);
  await tell('the stack is stopped; sessions and their sandboxes stay: vmux up brings them back');
  return 0;
}
