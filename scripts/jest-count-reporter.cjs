const { writeFileSync } = require('node:fs');

/** Lists every skipped test and hands the counts to scripts/test.mjs, which prints them last. */
module.exports = class CountReporter {
  onRunComplete(_contexts, results) {
    const tests = results.testResults.flatMap((file) => file.testResults);
    for (const test of tests.filter(({ status }) => status === 'pending' || status === 'todo')) {
      console.log(`skipped: ${test.fullName}`);
    }
    const counts = {
      passed: results.numPassedTests,
      // A file that does not even load has run none of its tests: it counts as one failure.
      failed: results.numFailedTests + results.numRuntimeErrorTestSuites,
      skipped: results.numPendingTests + results.numTodoTests,
      failedFiles: results.testResults
        .filter((file) => file.numFailingTests > 0 || file.testExecError)
        .map((file) => file.testFilePath),
    };
    if (process.env.VMUX_TEST_COUNTS)
      writeFileSync(process.env.VMUX_TEST_COUNTS, JSON.stringify(counts));
  }
};
