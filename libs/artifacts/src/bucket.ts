import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';

export interface BucketSettings {
  readonly bucket: string;
  /** In front of every name; empty, or ending with a slash. */
  readonly prefix: string;
  /** Of a server that is not Amazon's, for instance R2's or one on this machine. */
  readonly endpoint?: string;
  readonly region: string;
  /** Found where the vendor's tools look (environment, files, roles) without them. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
}

export interface Found {
  readonly bytes: number;
  readonly modifiedAtMs: number;
}

/** A bucket of an S3-compatible service. The vendor's types and errors end here. */
export class Bucket {
  private readonly client: S3Client;

  constructor(private readonly settings: BucketSettings) {
    const { endpoint, region, credentials } = settings;
    this.client = new S3Client({
      region,
      ...(endpoint ? { endpoint, forcePathStyle: true } : {}),
      ...(credentials ? { credentials } : {}),
      // Every content is verified by its own digest; not every service knows the vendor's newer sums.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
    });
  }

  async find(name: string): Promise<Found | undefined> {
    try {
      const head = await this.client.send(new HeadObjectCommand(this.at(name)));
      return {
        bytes: head.ContentLength ?? 0,
        modifiedAtMs: head.LastModified?.getTime() ?? 0,
      };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async put(name: string, body: Uint8Array | Readable, bytes: number): Promise<void> {
    const command = { ...this.at(name), Body: body, ContentLength: bytes };
    await this.client.send(new PutObjectCommand(command));
  }

  /** A file of this machine; tried again from its beginning when the connection breaks. */
  async putFile(name: string, path: string, bytes: number): Promise<void> {
    for (let tries = 1; ; tries += 1)
      try {
        return await this.put(name, createReadStream(path), bytes);
      } catch (error) {
        if (tries === MAX_TRIES || !isPassing(error)) throw error;
      }
  }

  /** When the connection breaks it goes on where it was, as long as the object is the same. */
  async get(
    name: string,
  ): Promise<{ readonly bytes: number; readonly stream: Readable } | undefined> {
    try {
      const { Body, ContentLength, ETag } = await this.client.send(
        new GetObjectCommand(this.at(name)),
      );
      const [bytes, first] = [ContentLength ?? 0, Body as Readable];
      const stream = Readable.from(this.resuming(name, first, bytes, ETag), { objectMode: false });
      return { bytes, stream };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  private async *resuming(
    name: string,
    first: Readable,
    bytes: number,
    etag: string | undefined,
  ): AsyncGenerator<Buffer> {
    let body = first;
    let at = 0;
    for (let tries = 1; ; tries += 1) {
      try {
        for await (const part of body as AsyncIterable<Buffer>) {
          at += part.length;
          yield part;
        }
        if (at >= bytes) return;
        throw new Error(`cut off at ${at} of ${bytes} bytes`);
      } catch (error) {
        if (tries >= MAX_TRIES || at >= bytes) throw error;
      } finally {
        body.destroy();
      }
      const rest = { ...this.at(name), Range: `bytes=${at}-`, IfMatch: etag };
      body = (await this.client.send(new GetObjectCommand(rest))).Body as Readable;
    }
  }

  /** Makes an object as young as if it had just been put; false when there is none. */
  async renew(name: string): Promise<boolean> {
    const { Bucket, Key } = this.at(name);
    const CopySource = `${Bucket}/${Key.split('/').map(encodeURIComponent).join('/')}`;
    try {
      // A service refuses to copy an object onto itself when nothing of it changes.
      const Metadata = { renewed: String(Date.now()) };
      await this.client.send(
        new CopyObjectCommand({ Bucket, Key, CopySource, Metadata, MetadataDirective: 'REPLACE' }),
      );
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  async remove(name: string): Promise<void> {
    await this.client.send(new DeleteObjectCommand(this.at(name)));
  }

  /** The names that begin so, without the bucket's own prefix. */
  async *names(prefix: string): AsyncGenerator<string> {
    const { bucket, prefix: own } = this.settings;
    let token: string | undefined;
    do {
      const page = await this.client.send(
        new ListObjectsV2Command({
          Bucket: bucket,
          Prefix: own + prefix,
          ...(token ? { ContinuationToken: token } : {}),
        }),
      );
      for (const { Key } of page.Contents ?? []) if (Key) yield Key.slice(own.length);
      token = page.IsTruncated ? page.NextContinuationToken : undefined;
    } while (token);
  }

  close(): void {
    this.client.destroy();
  }

  private at(name: string) {
    return { Bucket: this.settings.bucket, Key: this.settings.prefix + name };
  }
}

const MAX_TRIES = 5;

/** The connection broke before there was an answer, or the service has too much to do. */
const isPassing = (error: unknown): boolean => {
  const { $metadata: answered } = error as {
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  const status = answered?.httpStatusCode;
  return status === undefined || status >= 500 || status === 429;
};

const isMissing = (error: unknown): boolean =>
  error instanceof Error && ['NotFound', 'NoSuchKey'].includes(error.name);
