import type { ForkTree } from '@vmux/sdk';
import { onlyName, parsed } from '../arguments';
import { labelled } from '../offers';
import { findServer, findSession } from '../server';
import { jsonText, visible } from '../terminal/escape';
import { print } from '../terminal/output';

const options = { json: { type: 'boolean' }, tree: { type: 'boolean' } } as const;

/** Everything that is known of a session, and its commands, the newest first; or the tree of its forks. */
export async function inspect(args: readonly string[]): Promise<number> {
  const given = parsed('inspect', args, options);
  const sandbox = await findSession(await findServer(), onlyName(given, 'inspect'));
  if (given.has('tree')) {
    const tree = await sandbox.time.tree();
    if (given.has('json')) await print(jsonText(tree));
    else for (const line of branchesOf(tree, sandbox.id)) await print(line);
    return 0;
  }
  const [session, execs] = await Promise.all([sandbox.info(), sandbox.commands.list()]);
  await print(jsonText({ session, execs }, given.has('json') ? undefined : 2));
  return 0;
}

/** One line for each session, its forks below it; the one that was asked for has a star. */
function branchesOf(tree: ForkTree, own: string, first = '', rest = ''): readonly string[] {
  const { id, status, checkpointId, forks } = tree;
  const from = checkpointId === null ? '' : `  from ${checkpointId}`;
  const line = `${first}${id}${id === own ? ' *' : ''}  ${status}  ${labelled(tree)}${from}`;
  return [
    visible(line),
    ...forks.flatMap((fork, index) => {
      const isLast = index === forks.length - 1;
      return branchesOf(
        fork,
        own,
        `${rest}${isLast ? '└─ ' : '├─ '}`,
        `${rest}${isLast ? '   ' : '│  '}`,
      );
    }),
  ];
}
