import { ArtifactDirectory } from './directory';
import type { ArtifactStore } from './port';

/**
 * The store at a place: a directory, or `s3://bucket/prefix?region=…&endpoint=…` of an S3-compatible service
 * (R2: `region=auto` and its endpoint), whose credentials are found where the vendor's tools look.
 */
export async function openArtifacts(location: string, graceMs?: number): Promise<ArtifactStore> {
  if (!location.startsWith('s3://')) return ArtifactDirectory.at(location, graceMs);
  const url = new URL(location);
  const prefix = url.pathname.replace(/^\/+|\/+$/g, '');
  const endpoint = url.searchParams.get('endpoint');
  const region = url.searchParams.get('region') ?? process.env.AWS_REGION;
  if (!url.hostname || !region)
    throw new Error(`${location} names no bucket or no region: s3://bucket/prefix?region=…`);
  // The vendor's library takes long to load: only where it is used.
  const { ArtifactBucket }: typeof import('./artifact-bucket') = require('./artifact-bucket');
  const settings = {
    bucket: url.hostname,
    prefix: prefix === '' ? '' : `${prefix}/`,
    region,
    ...(endpoint ? { endpoint } : {}),
  };
  return new ArtifactBucket(settings, graceMs);
}
