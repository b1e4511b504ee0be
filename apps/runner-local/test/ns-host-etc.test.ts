import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { writeEtc } from '../src/drivers/ns-host-etc';

afterAll(releaseAll);

describe('the /etc of an ns sandbox', () => {
  const before = process.umask(0o077);
  afterAll(() => {
    process.umask(before);
  });

  it('is for everyone to read, whatever the umask of the runner, but for the shadow files', async () => {
    const etc = join(temporaryDirectory('etc'), 'etc');
    await writeEtc(etc);
    const modeOf = (name: string) => lstatSync(join(etc, name)).mode & 0o777;
    expect(modeOf('.').toString(8)).toBe('755');
    for (const name of ['passwd', 'group', 'nsswitch.conf', 'fstab', 'machine-id', 'hosts'])
      if (readdirSync(etc).includes(name)) expect([name, modeOf(name)]).toEqual([name, 0o644]);
    expect(readdirSync(etc)).toEqual(expect.arrayContaining(['passwd', 'group', 'nsswitch.conf']));
    expect([modeOf('shadow'), modeOf('gshadow')]).toEqual([0o640, 0o640]);
  });
});
