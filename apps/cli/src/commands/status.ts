import { join } from 'node:path';
import { noNames, parsed } from '../arguments';
import { exitCodes } from '../failure';
import { labelled } from '../offers';
import { findServer } from '../server';
import { dataPathOf } from '../stack/data-directory';
import { runningStack } from '../stack/stack-record';
import { jsonText, visible } from '../terminal/escape';
import { print } from '../terminal/output';

interface Runners {
  readonly runners: readonly {
    readonly runnerId: string;
    readonly alive: boolean;
    readonly providers: readonly {
      readonly provider: string;
      readonly available: boolean;
      readonly reason: string | null;
      readonly emulated: boolean;
    }[];
  }[];
}

/** Whether a server runs, where, and what it offers. Exits 1 when none does. */
export async function status(args: readonly string[]): Promise<number> {
  const given = parsed('status', args, { json: { type: 'boolean' } });
  noNames(given, 'status');
  const isJson = given.has('json');
  const data = dataPathOf(process.env);
  const stack = process.env.VMUX_URL ? null : runningStack(data);
  if (!process.env.VMUX_URL && !stack?.url) {
    if (isJson) await print(jsonText({ running: false, url: null, pid: null, data, runners: [] }));
    else await print(`no stack ${stack ? 'serves yet' : 'runs'} here (data in ${data}): vmux up`);
    return exitCodes.failed;
  }
  const { vmux } = await findServer();
  const { runners } = await vmux.call<Runners>('GET', '/v1/runners');
  if (isJson) {
    const place = stack ? { pid: stack.pid, data } : { pid: null, data: null };
    await print(jsonText({ running: true, url: vmux.url, ...place, runners }));
    return 0;
  }
  await print(`vmux serves at ${vmux.url}`);
  if (stack)
    await print(`process ${stack.pid}, data in ${data}, log in ${join(data, 'stack.log')}`);
  for (const { runnerId, alive, providers } of runners) {
    await print(`runner ${visible(runnerId)}: ${alive ? 'alive' : 'not heard of'}`);
    for (const { provider, available, reason, emulated } of providers) {
      const how = available ? 'available' : visible(reason ?? 'not available');
      await print(`  ${visible(labelled({ provider, emulated }))}: ${how}`);
    }
  }
  return 0;
}
