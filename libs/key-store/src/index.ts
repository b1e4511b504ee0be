export { KeyDirectory } from './directory';
export { KeyDestroyed, type KeyStore, SealBroken } from './port';
