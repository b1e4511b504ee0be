import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import {
  CreateBucketCommand,
  GetObjectCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { ArtifactDirectory, type ArtifactStore, type Digest, openArtifacts } from '@vmux/artifacts';
import { freePort, releaseLater, startProcess } from '@vmux/testing';
import S3rver from 's3rver';

/** A store by its port, and from behind: its pieces can be damaged and made old. */
export interface Opened {
  readonly store: ArtifactStore;
  /** What is that old may be dropped. */
  readonly graceMs: number;
  reopen(graceMs: number): Promise<ArtifactStore>;
  /** As it is kept. */
  readPiece(digest: Digest): Promise<Buffer>;
  writePiece(digest: Digest, bytes: Buffer): Promise<void>;
  /** Returns when they are older than the grace period. */
  age(digests: readonly Digest[]): Promise<void>;
}

const HOUR = 3600_000;

export const noMoto =
  spawnSync('moto_server', ['--help']).status === 0 ? '' : 'moto_server is not installed';

const onDisk = (fileOf: (digest: Digest) => string) => ({
  graceMs: HOUR,
  readPiece: (digest: Digest) => readFile(fileOf(digest)),
  writePiece: (digest: Digest, bytes: Buffer) => writeFile(fileOf(digest), bytes),
  age: async (digests: readonly Digest[]) => {
    const then = (Date.now() - 2 * HOUR) / 1000;
    for (const digest of digests) await utimes(fileOf(digest), then, then);
  },
});

export async function openDirectory(): Promise<Opened> {
  const root = await mkdtemp(join(tmpdir(), 'vmux-chunks-'));
  releaseLater(() => rm(root, { recursive: true }));
  return {
    store: await ArtifactDirectory.at(root),
    reopen: (graceMs) => ArtifactDirectory.at(root, graceMs),
    ...onDisk((digest) => join(root, 'chunks', digest.slice(0, 2), digest.slice(2))),
  };
}

const locationAt = (port: number) =>
  `s3://vmux/some/prefix?region=us-east-1&endpoint=http://127.0.0.1:${port}`;

export async function openS3rver(): Promise<Opened> {
  const directory = await mkdtemp(join(tmpdir(), 'vmux-s3-'));
  const server = new S3rver({
    ...{ port: 0, address: '127.0.0.1', silent: true, directory },
    configureBuckets: [{ name: 'vmux', configs: [] }],
  });
  const { port } = await server.run();
  releaseLater(async () => {
    await server.close();
    await rm(directory, { recursive: true });
  });
  // Those that the server knows.
  process.env.AWS_ACCESS_KEY_ID = 'S3RVER';
  process.env.AWS_SECRET_ACCESS_KEY = 'S3RVER';
  const chunks = join(directory, 'vmux/some/prefix/chunks');
  return {
    store: await openArtifacts(locationAt(port)),
    reopen: (graceMs) => openArtifacts(locationAt(port), graceMs),
    ...onDisk((digest) => join(chunks, `${digest}._S3rver_object`)),
  };
}

/** Another implementation of the protocol, in another language, by other people; it keeps all in memory. */
export async function openMoto(): Promise<Opened & { readonly port: number }> {
  const port = await freePort();
  await startProcess({
    command: 'moto_server',
    args: ['-H', '127.0.0.1', '-p', String(port)],
    ready: (line) => (line.includes('Running on') ? true : undefined),
    readyTimeoutMs: 60_000,
  });
  process.env.AWS_ACCESS_KEY_ID = 'any';
  process.env.AWS_SECRET_ACCESS_KEY = 'any';
  const endpoint = `http://127.0.0.1:${port}`;
  const client = new S3Client({ endpoint, region: 'us-east-1', forcePathStyle: true });
  releaseLater(async () => client.destroy());
  await client.send(new CreateBucketCommand({ Bucket: 'vmux' }));
  const at = (digest: Digest) => ({ Bucket: 'vmux', Key: `some/prefix/chunks/${digest}` });
  const graceMs = 4000;
  return {
    port,
    graceMs,
    store: await openArtifacts(locationAt(port)),
    reopen: (grace) => openArtifacts(locationAt(port), grace),
    readPiece: async (digest) => {
      const { Body } = await client.send(new GetObjectCommand(at(digest)));
      return buffer(Body as NodeJS.ReadableStream);
    },
    writePiece: async (digest, bytes) => {
      await client.send(new PutObjectCommand({ ...at(digest), Body: bytes }));
    },
    // Its clock cannot be set, and tells seconds.
    age: () => new Promise((resolve) => setTimeout(resolve, graceMs + 1100)),
  };
}
