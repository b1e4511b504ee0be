import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { temporaryDirectory } from '@vmux/testing';
import type { ApiClient } from './api-client';

const COPY = { recursive: true, verbatimSymlinks: true };

export type Files = Readonly<Record<string, string>>;

const WHEEL = `import sys, zipfile
meta = 'tiny-1.0.dist-info/'
with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'word = "installed"\\n')
    wheel.writestr(meta + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr(meta + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(meta + 'RECORD', '')
`;

export interface Baggage {
  /** A wheel of a package `tiny`, in `wheels/`. */
  readonly wheel?: boolean;
  /** A program and what it needs, in `tools/`. */
  readonly tools?: string;
  /** Done to the files before they are packed, such as to write a lock file. */
  finish?(directory: string): void;
}

/** Sessions that come with files, and what was installed for them. */
export class Setups {
  constructor(private readonly api: ApiClient) {}

  async bundle(files: Files, { wheel, tools, finish }: Baggage = {}): Promise<string> {
    const directory = temporaryDirectory('bundle');
    for (const [name, content] of Object.entries(files)) {
      mkdirSync(dirname(join(directory, name)), { recursive: true });
      writeFileSync(join(directory, name), content);
    }
    if (wheel) {
      mkdirSync(join(directory, 'wheels'));
      execFileSync('python3', ['-c', WHEEL, join(directory, 'wheels')]);
    }
    finish?.(directory);
    if (tools) cpSync(tools, join(directory, 'tools'), COPY);
    const pinned = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0'];
    const maxBuffer = 512 * 1024 * 1024;
    const tar = execFileSync('tar', ['-C', directory, ...pinned, '-c', '.'], { maxBuffer });
    const body = execFileSync('gzip', ['-n', '-1'], { input: tar, maxBuffer });
    const digest = createHash('sha256').update(body).digest('hex');
    expect((await this.api.call('PUT', `/v1/bundles/${digest}`, { body })).status).toBeLessThan(
      300,
    );
    return digest;
  }

  async session(bundle: string, more: object = {}): Promise<string> {
    const { status, json } = await this.api.post('/v1/sessions', {
      name: 'setup',
      bundle,
      ...more,
    });
    expect(status).toBe(201);
    return json.id;
  }

  async run(session: string, command: string) {
    return (await this.api.post(`/v1/sessions/${session}/execs?wait=120s`, { command })).json;
  }

  /** The exec that installed what the session needs; undefined when there was none. */
  async of(session: string) {
    const { execs } = (await this.api.get(`/v1/sessions/${session}/execs`)).json;
    return execs.find(({ purpose }: { purpose: string }) => purpose === 'setup');
  }

  async detail(session: string) {
    return (await this.api.get(`/v1/sessions/${session}`)).json;
  }

  async stages(session: string): Promise<string[]> {
    return (await this.detail(session)).stages.map(({ stage }: { stage: string }) => stage);
  }

  async log(session: string, exec: string): Promise<string> {
    return (await this.api.raw(`/v1/sessions/${session}/logs?exec=${exec}`)).bytes.toString();
  }
}
