import { fact } from '@vmux/events';
import { command } from './domain-makers';
import { given, running } from './domain-spec';

const access = (
  data: Partial<{ port: number; public: boolean; wake: boolean; revokeTokens: boolean }>,
  key?: string,
) =>
  command(
    'SetPortAccess',
    {
      port: data.port ?? 8000,
      public: data.public ?? null,
      wake: data.wake ?? null,
      revokeTokens: data.revokeTokens ?? false,
    },
    key === undefined ? {} : { key: key.padEnd(22, '_') },
  );

describe('Access to a port', () => {
  it('is private until it is published, and again afterwards', () => {
    given(...running())
      .when(access({ public: true, wake: true }))
      .thenHappens(
        fact('PortAccessChanged', {
          at: 1_000,
          port: 8000,
          public: true,
          wake: true,
          generation: 0,
        }),
      );
    given(...running())
      .when(access({ public: false, wake: false }))
      .thenNothing();
    given(...running(), access({ public: true }, 'one'))
      .when(access({ public: true }, 'two'))
      .thenNothing();
    given(...running(), access({ public: true }, 'one'))
      .when(access({ public: false }, 'two'))
      .thenHappens(
        fact('PortAccessChanged', {
          at: 1_000,
          port: 8000,
          public: false,
          wake: false,
          generation: 0,
        }),
      );
  });

  it('loses its tokens with every revocation, and nothing else', () => {
    given(...running(), access({ public: true }, 'one'), access({ revokeTokens: true }, 'two'))
      .when(access({ revokeTokens: true }, 'three'))
      .thenHappens(
        fact('PortAccessChanged', {
          at: 1_000,
          port: 8000,
          public: true,
          wake: false,
          generation: 2,
        }),
      );
  });

  it('is recorded for a bounded number of ports', () => {
    const many = Array.from({ length: 256 }, (_, index) =>
      access({ port: index + 1, public: true }, `port-${index}`),
    );
    given(...running(), ...many)
      .when(access({ port: 9999, public: true }, 'last'))
      .thenRefused('too_many');
    given(...running(), ...many)
      .when(access({ port: 256, public: false }, 'last'))
      .thenTypes('PortAccessChanged');
  });
});
