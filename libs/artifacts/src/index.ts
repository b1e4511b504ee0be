export { ArtifactDirectory } from './directory';
export {
  ArtifactNotFound,
  type ArtifactStore,
  ArtifactTooLarge,
  type Digest,
  DigestMismatch,
  isDigest,
  type PutOptions,
  type StoredArtifact,
} from './port';
