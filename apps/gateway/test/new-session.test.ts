import { newSessionFrom } from '../src/sessions/new-session';

const HERE = { defaultProvider: 'ns', allowedHosts: ['registry.internal'] };

describe('A new session', () => {
  it('reaches nothing unless it asks for it', () => {
    expect(newSessionFrom({}, HERE).spec).toMatchObject({ egress: false, allowHosts: [] });
  });

  it('is refused hosts that are allowed in addition to nothing', () => {
    const allowHosts = ['registry.internal'];
    expect(() => newSessionFrom({ allowHosts }, HERE)).toThrow('allowHosts adds to egress');
    expect(newSessionFrom({ allowHosts, egress: true }, HERE).spec).toMatchObject({ allowHosts });
  });

  it('reaches no host of its own choosing beside those that the installation names', () => {
    const ask = (host: string, allowedHosts: readonly string[]) =>
      newSessionFrom({ allowHosts: [host], egress: true }, { ...HERE, allowedHosts }).spec;
    expect(() => ask('169.254.169.254', ['registry.internal'])).toThrow('may not reach 169.254');
    expect(() => ask('registry.internal', [])).toThrow('may not reach registry.internal');
    expect(ask('Registry.Internal', ['registry.internal'])).toMatchObject({ egress: true });
    expect(ask('10.0.0.1', ['*'])).toMatchObject({ allowHosts: ['10.0.0.1'] });
  });

  it('needs the limits that it names, and no others', () => {
    const neededBy = (resources: object) =>
      newSessionFrom({ resources }, HERE).spec.resources.needsLimits;
    expect(neededBy({})).toBeUndefined();
    expect(neededBy({ memoryMiB: 1024 })).toEqual(['memoryLimit']);
    expect(neededBy({ cpus: 1, pids: 64 })).toEqual(['cpuLimit', 'pidsLimit']);
  });

  it('needs a disk limit that is enforced when it names one', () => {
    const resourcesOf = (resources: object) => newSessionFrom({ resources }, HERE).spec.resources;
    expect(resourcesOf({ cpus: 1 })).not.toHaveProperty('needsDiskLimit');
    expect(resourcesOf({ diskMiB: 64 })).not.toHaveProperty('needsLimits');
    expect(resourcesOf({ diskMiB: 10_240 })).toMatchObject({
      diskMiB: 10_240,
      needsDiskLimit: true,
    });
  });

  it('is set up when it comes with files, unless it says otherwise', () => {
    const bundle = '0'.repeat(64);
    expect(newSessionFrom({}, HERE).spec.setup).toBe('none');
    expect(newSessionFrom({ bundle }, HERE).spec.setup).toBe('auto');
    expect(newSessionFrom({ bundle, setup: 'none' }, HERE).spec.setup).toBe('none');
  });
});
