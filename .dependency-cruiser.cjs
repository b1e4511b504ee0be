/** The arrows of the code base: adapters → application → domain → libs/events → nothing; apps → libs. */
module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-app-imports-another-app',
      severity: 'error',
      from: { path: '^apps/([^/]+)/' },
      to: { path: '^apps/', pathNot: '^apps/$1/' },
    },
    {
      name: 'no-lib-imports-an-app',
      severity: 'error',
      from: { path: '^libs/' },
      to: { path: '^apps/' },
    },
    {
      name: 'libs-are-entered-by-their-front-door',
      severity: 'error',
      from: { path: '^(apps|libs)/([^/]+)/' },
      to: { path: '^libs/', pathNot: ['^libs/[^/]+/src/(index|contract)\\.ts$', '^$1/$2/'] },
    },
    {
      name: 'events-depend-on-nothing',
      severity: 'error',
      from: { path: '^libs/events/src/' },
      to: { pathNot: '^libs/events/src/', dependencyTypesNot: ['core'] },
    },
    {
      name: 'domain-depends-on-events-alone',
      severity: 'error',
      from: { path: '^apps/[^/]+/src/domain/' },
      to: {
        pathNot: ['^apps/[^/]+/src/domain/', '^libs/events/src/'],
        dependencyTypesNot: ['core'],
      },
    },
    {
      name: 'application-knows-no-adapter',
      severity: 'error',
      from: { path: '^apps/([^/]+)/src/application/' },
      to: { path: '^apps/$1/src/adapters/' },
    },
    {
      name: 'vendor-client-in-one-file',
      severity: 'error',
      from: {
        path: '^(apps|libs)/',
        pathNot: ['^libs/event-store/src/', '^apps/event-store/', '/test/'],
      },
      to: { path: 'node_modules/@(eventstore|kurrent)/' },
    },
    {
      name: 'test-helpers-stay-in-tests',
      severity: 'error',
      from: { pathNot: ['/test/', '^libs/testing/', '^test/', '^bench/'] },
      to: { path: '^libs/testing/' },
    },
    {
      name: 'not-to-dev-dependency',
      severity: 'error',
      from: { path: '^(apps|libs)/[^/]+/src/', pathNot: '^libs/testing/' },
      to: { dependencyTypes: ['npm-dev'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    exclude: { path: '/fixtures/' },
  },
};
