export {
  type CheckpointRoot,
  ManifestWriter,
  piecesOf,
  readEntries,
  readRoot,
  type WrittenCheckpoint,
} from './checkpoint-archive';
export { ChunkUnreadable } from './chunk-codec';
export { ChunkDirectory, DEFAULT_GRACE_MS } from './chunk-directory';
export { Chunker } from './chunker';
export { type ChunkStore, MAX_CHUNK_BYTES, type PutChunk } from './chunks';
export { type Digest, digestOf, isDigest } from './digest';
export { ArtifactDirectory } from './directory';
export type { Collected, LiveReferences } from './garbage';
export {
  type Attribute,
  checkEntry,
  type EntryType,
  type Extent,
  encodeHead,
  encodeIdentity,
  type FileContent,
  inTreeOrder,
  MAX_ENTRIES,
  type ManifestEntry,
  ManifestRefused,
  type Segment,
} from './manifest';
export { openArtifacts } from './open';
export {
  ArtifactNotFound,
  type ArtifactStore,
  ArtifactTooLarge,
  DigestMismatch,
  type PutOptions,
  type StoredArtifact,
} from './port';
export { UploadGap, UploadOverrun, type UploadPart, Uploads } from './uploads';
