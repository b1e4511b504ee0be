const swc = require('./scripts/swc.cjs');
const { compilerOptions } = require('./tsconfig.json');

const moduleNameMapper = Object.fromEntries(
  Object.entries(compilerOptions.paths).map(([alias, [target]]) => [
    `^${alias}$`,
    `<rootDir>/${target}`,
  ]),
);

/** Tests start real servers, so a test may take seconds; nothing in them asserts on elapsed time. */
module.exports = {
  testEnvironment: 'node',
  roots: [
    '<rootDir>/apps',
    '<rootDir>/libs',
    '<rootDir>/native',
    '<rootDir>/test',
    '<rootDir>/scripts',
  ].filter((dir) => require('node:fs').existsSync(dir.replace('<rootDir>', __dirname))),
  testMatch: ['**/*.test.ts'],
  transform: { '^.+\\.ts$': ['@swc/jest', swc] },
  moduleNameMapper,
  globalSetup: '<rootDir>/scripts/jest-global-setup.cjs',
  reporters: ['default', '<rootDir>/scripts/jest-count-reporter.cjs'],
  testTimeout: 30_000,
  maxWorkers: 2,
};
