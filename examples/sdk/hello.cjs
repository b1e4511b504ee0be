const { Sandbox, VmuxError } = require('@vmux/sdk');

async function main() {
  const sandbox = await Sandbox.create({ name: 'hello' });
  const onStdout = (bytes) => void process.stdout.write(bytes);
  await sandbox.commands.run('for i in 1 2 3; do echo $i; done', { onStdout });
  const missing = await sandbox.files.read('nothing').catch((fault) => fault);
  console.log(VmuxError.is(missing, 'file_not_found'), missing.hint);
  await sandbox.kill();
}
main();
