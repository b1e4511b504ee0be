// Tests that start our own processes start them from dist/: build first, whoever runs jest.
module.exports = async () => {
  const { build } = await import('./build.mjs');
  await build();
};
