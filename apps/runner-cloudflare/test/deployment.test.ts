import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '@vmux/testing';
import { build } from 'esbuild';
import { COMPATIBILITY_DATE } from '../../../emulators/cloudflare/src/emulator';
import { ENTRY_PORT } from '../../../workers/cloudflare/src/entry-client';
import { INSTANCE_TYPES, instanceTypeFor } from '../../../workers/cloudflare/src/instance-types';

const worker = join(projectRoot(), 'workers/cloudflare');
const textOf = (path: string): string => readFileSync(join(worker, path), 'utf8');
const jsonOf = (path: string) => JSON.parse(textOf(path).replace(/^\s*\/\/.*$/gm, ''));

interface Named {
  readonly name: string;
  readonly class_name: string;
}

describe('what is deployed to Cloudflare', () => {
  const config = jsonOf('wrangler.jsonc');
  const classes = INSTANCE_TYPES.map(({ className }) => className);

  it('has a container class and a binding for each instance type, by the names in the code', () => {
    const containers = config.containers.map(
      ({ class_name, instance_type }: { class_name: string; instance_type: string }) => ({
        className: class_name,
        name: instance_type,
      }),
    );
    expect(containers).toEqual(INSTANCE_TYPES.map(({ className, name }) => ({ className, name })));
    const bindings = config.durable_objects.bindings.map(({ name, class_name }: Named) => [
      name,
      class_name,
    ]);
    expect(bindings).toEqual([
      ['REGISTRY', 'Registry'],
      ...INSTANCE_TYPES.map(({ binding, className }) => [binding, className]),
    ]);
    expect(config.migrations).toEqual([
      { tag: 'v1', new_sqlite_classes: ['Registry', ...classes] },
    ]);
  });

  it('is one module that exports every class that the configuration names', async () => {
    const { metafile } = await build({
      entryPoints: [join(worker, config.main)],
      bundle: true,
      write: false,
      metafile: true,
      format: 'esm',
      conditions: ['workerd', 'worker', 'browser'],
      external: ['cloudflare:*', 'node:*'],
      outdir: '/unwritten',
      logLevel: 'error',
    });
    const [output] = Object.values(metafile.outputs);
    expect(output?.exports.sort()).toEqual(
      ['ContainerProxy', 'Registry', 'default', ...classes].sort(),
    );
  });

  it('names only settings that the code reads, and no secret', () => {
    const env = textOf('src/env.ts');
    for (const name of Object.keys(config.vars).filter((name) => name.startsWith('VMUX_')))
      expect(env).toContain(`readonly ${name}?`);
    expect(env).toContain(`readonly ${config.r2_buckets[0].binding}?`);
    expect(Object.keys(config.vars)).not.toContain('VMUX_KEY');
    expect(config.triggers.crons).toHaveLength(1);
    expect(config.compatibility_date).toBe(COMPATIBILITY_DATE);
  });

  it('has an image of the same version as the library, with the port that the Worker dials', () => {
    const versions = [
      jsonOf('package.json').dependencies,
      jsonOf('../../package.json').devDependencies,
    ];
    const [own, root] = versions.map((all) => all['@cloudflare/sandbox']);
    expect(own).toBe(root);
    const dockerfile = textOf('Dockerfile');
    expect(dockerfile).toContain(`FROM docker.io/cloudflare/sandbox:${own}-python`);
    expect(dockerfile).toContain(`EXPOSE ${ENTRY_PORT}`);
  });
});

describe('the instance type of a Cloudflare sandbox', () => {
  const asked = { cpus: 0.05, memoryMiB: 128, diskMiB: 1000, pids: 64 };
  const nameFor = (more: object, offered?: readonly string[]) => {
    const type = instanceTypeFor({ ...asked, ...more }, offered);
    return 'refused' in type ? type.refused : type.name;
  };

  it('is the smallest that has what was asked for', () => {
    expect(nameFor({})).toBe('lite');
    expect(nameFor({ cpus: 0.25 })).toBe('basic');
    expect(nameFor({ memoryMiB: 1025 })).toBe('standard-1');
    expect(nameFor({ diskMiB: 8000 })).toBe('standard-2');
    expect(nameFor({ cpus: 2 })).toBe('standard-3');
    expect(nameFor({ cpus: 4, memoryMiB: 12_288, diskMiB: 19_073 })).toBe('standard-4');
    expect(nameFor({}, ['standard-2', 'standard-4'])).toBe('standard-2');
  });

  it('is refused with the largest that there is', () => {
    for (const more of [{ cpus: 4.01 }, { memoryMiB: 12_289 }, { diskMiB: 19_074 }])
      expect(nameFor(more)).toContain('at most 4 vCPU, 12288 MiB and 19073 MiB');
  });
});
