import fc from 'fast-check';
import {
  eventIdOf,
  givenName,
  isSessionId,
  nameOfDirectory,
  Refusal,
  scopedKey,
  sessionIdOf,
} from '../src';

const refusalOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
  return 'accepted';
};

describe('Session ids', () => {
  it('are made of the name and four hex digits', () => {
    expect(sessionIdOf('geospot-rl', 'ann', 'k1', 0)).toMatch(/^geospot-rl-[0-9a-f]{4}$/);
  });

  it('are the same for the same owner, key and attempt, and not for another of any of them', () => {
    const id = sessionIdOf('a', 'ann', 'k1', 0);
    expect(sessionIdOf('a', 'ann', 'k1', 0)).toBe(id);
    expect(sessionIdOf('a', 'bob', 'k1', 0)).not.toBe(id);
    expect(sessionIdOf('a', 'ann', 'k2', 0)).not.toBe(id);
    expect(sessionIdOf('a', 'ann', 'k1', 1)).not.toBe(id);
  });

  it('fit into a DNS label together with a port, whatever the directory is called', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 200 }), (directory) => {
        const id = sessionIdOf(nameOfDirectory(directory), 'ann', directory, 0);
        expect(isSessionId(id)).toBe(true);
        expect(`65535-${id}`.length).toBeLessThanOrEqual(63);
      }),
    );
  });

  it('take the last part of a path for a name', () => {
    expect(nameOfDirectory('/home/ann/Geo Spot_RL/')).toBe('geo-spot-rl');
    expect(nameOfDirectory('C:\\work\\Übung')).toBe('u-bung');
    expect(nameOfDirectory('/')).toBe('run');
    expect(nameOfDirectory('/srv/api')).toBe('api-run');
  });
});

describe('A given name', () => {
  it('is taken as it is', () => {
    expect(givenName('geospot-rl')).toBe('geospot-rl');
    expect(givenName('a'.repeat(52))).toHaveLength(52);
  });

  it.each(['', 'A', 'a_b', '-a', 'a-', 'a--b', 'a.b', 'ä', 'a'.repeat(53), 'a\n'])(
    'is refused when it is %j',
    (name) => expect(refusalOf(() => givenName(name))).toBe('invalid_name'),
  );

  it('is refused when it is reserved', () => {
    expect(refusalOf(() => givenName('api'))).toBe('reserved_name');
  });
});

describe('Derived ids', () => {
  it('keep parts apart that would run together', () => {
    expect(scopedKey('ab', 'c', 'd')).not.toBe(scopedKey('a', 'bc', 'd'));
  });

  it('of events are UUIDs that depend on the stream, the revision, the key and the place', () => {
    const id = eventIdOf('session-a-0000', 3, 'k', 0);
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    const others = [
      eventIdOf('session-b-0000', 3, 'k', 0),
      eventIdOf('session-a-0000', 4, 'k', 0),
      eventIdOf('session-a-0000', 3, 'l', 0),
      eventIdOf('session-a-0000', 3, 'k', 1),
    ];
    expect(new Set([id, ...others]).size).toBe(5);
    expect(eventIdOf('session-a-0000', 3, 'k', 0)).toBe(id);
  });
});
