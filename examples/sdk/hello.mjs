// VMUX_URL and VMUX_API_KEY say where the gateway is.
import { Sandbox } from '@vmux/sdk';

const sandbox = await Sandbox.create({ name: 'hello' });
await sandbox.files.write('hello.sh', 'read -r name; echo "hello $name from $(hostname)"');
const { exitCode, stdout } = await sandbox.commands.run(['sh', 'hello.sh'], { stdin: 'you\n' });
console.log(exitCode, stdout.trim());
console.log(await sandbox.files.read('hello.sh'));
for await (const { type } of sandbox.history()) console.log(type);
await sandbox.kill();
