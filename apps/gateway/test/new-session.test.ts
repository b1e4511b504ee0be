import { newSessionFrom } from '../src/sessions/new-session';

describe('A new session', () => {
  it('reaches nothing unless it asks for it', () => {
    expect(newSessionFrom({}, 'ns').spec).toMatchObject({ egress: false, allowHosts: [] });
  });

  it('is refused hosts that are allowed in addition to nothing', () => {
    const allowHosts = ['registry.internal'];
    expect(() => newSessionFrom({ allowHosts }, 'ns')).toThrow('allowHosts adds to egress');
    expect(newSessionFrom({ allowHosts, egress: true }, 'ns').spec).toMatchObject({ allowHosts });
  });

  it('is set up when it comes with files, unless it says otherwise', () => {
    const bundle = '0'.repeat(64);
    expect(newSessionFrom({}, 'ns').spec.setup).toBe('none');
    expect(newSessionFrom({ bundle }, 'ns').spec.setup).toBe('auto');
    expect(newSessionFrom({ bundle, setup: 'none' }, 'ns').spec.setup).toBe('none');
  });
});
