import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { projectIn } from '../src/project/vmux-toml';

afterAll(releaseAll);

const read = (text: string) => {
  const directory = temporaryDirectory('project');
  writeFileSync(join(directory, 'vmux.toml'), text);
  return projectIn(directory);
};

describe('vmux.toml', () => {
  it('is not needed', async () => {
    expect(await projectIn(temporaryDirectory('project'))).toBeNull();
  });

  it('names targets, and what all of them start from', async () => {
    const project = await read(`
default = "web"
provider = "ns"
env = { LEVEL = "info", WORKERS = 2 }

[targets.web]
command = "python3 -m http.server 8000"
ports = [8000]
setup = "none"
timeout = "5m"
max-runtime = "8h"
checkpoint-every = "15m"
rehydrate = "immediately"

[targets.gpu]
command = ["python3", "gpu.py"]
provider = "modal"
gpu = "T4"
memory = "2G"
env = { LEVEL = "debug" }
`);
    expect(project).toMatchObject({ defaultName: 'web' });
    expect(project?.targets).toEqual([
      {
        ...{ name: 'web', command: 'python3 -m http.server 8000', ports: [8000], provider: 'ns' },
        ...{ setup: 'none', timeoutMs: 300_000, env: { LEVEL: 'info', WORKERS: '2' } },
        ...{ maxRuntimeMs: 28_800_000, checkpointEveryMs: 900_000, rehydrate: 'immediately' },
      },
      {
        ...{ name: 'gpu', command: ['python3', 'gpu.py'], provider: 'modal', gpu: 'T4' },
        ...{ memoryMiB: 2048, env: { LEVEL: 'debug', WORKERS: '2' } },
      },
    ]);
  });

  it('names an image, or says what is run on top of one', async () => {
    const project = await read(`
image = { from = "python:3.12", run = ["pip install numpy"] }

[targets.shared]
command = "a"

[targets.plain]
command = "b"
image = "vllm"

[targets.own]
command = "c"
[targets.own.image]
run = ["apt-get update", "apt-get install -y jq"]
`);
    expect(project?.targets).toEqual([
      { name: 'shared', command: 'a', image: 'python:3.12', build: ['pip install numpy'] },
      { name: 'plain', command: 'b', image: 'vllm', build: undefined },
      {
        ...{ name: 'own', command: 'c', image: undefined },
        build: ['apt-get update', 'apt-get install -y jq'],
      },
    ]);
  });

  it('may be a single target', async () => {
    expect(await read('command = "make"')).toMatchObject({
      defaultName: 'default',
      targets: [{ name: 'default', command: 'make' }],
    });
  });

  it.each<[string, string]>([
    ['a = \n', 'vmux.toml:1: '],
    ['command = "x"\nimage = { run = "make" }', 'vmux.toml:2: image must be the name of an image'],
    ['command = "x"\nimage = { copy = "." }', 'vmux.toml:2: image must be the name of an image'],
    ['command = "x"\nimage = { run = ["a\\nb"] }', 'vmux.toml:2: image must be'],
    ['[targets.web]\ncommand = "x"\nports = ["8000"]', 'vmux.toml:3: targets.web: ports must be'],
    ['[targets.web]\ncommand = "x"\nports = [70000]', 'vmux.toml:3: targets.web: ports must be'],
    ['\n\n[targets.web]\nports = [1]', 'vmux.toml:3: targets.web has no command'],
    ['[targets.web]\ncommand = "x"\n\ncomand = "y"', 'vmux.toml:4: targets.web: there is no key'],
    ['default = "wbe"\n[targets.web]\ncommand = "x"', 'vmux.toml:1: default names no target'],
    ['[targets.web]\ncommand = "x"\ntimeout = "soon"', 'vmux.toml:3: targets.web: timeout must'],
    ['[targets.web]\ncommand = []', 'vmux.toml:2: targets.web: command must be'],
    ['[targets."Not good"]\ncommand = "x"', 'vmux.toml:1: "Not good" is not a name'],
    ['targets = 3', 'vmux.toml:1: targets must be tables'],
    ['env = { "a b" = "c" }\ncommand = "x"', 'vmux.toml:1: env must be'],
  ])('is refused with the line where it is wrong: %j', async (text, message) => {
    await expect(read(text)).rejects.toThrow(message);
  });
});
