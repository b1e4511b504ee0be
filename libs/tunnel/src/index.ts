export { type OpenedStream, type TunnelAddress, TunnelConnection } from './client';
export {
  MalformedFrame,
  type RefusedCode,
  type RefusedFacts,
  StreamCancelled,
  TunnelBroken,
  TunnelRefused,
  TunnelUnreachable,
} from './errors';
export { MAX_DATA_BYTES, MAX_STREAMS, WINDOW_BYTES } from './frames';
export { Tunnels } from './pool';
export {
  isSandboxPath,
  isSandboxUser,
  MAX_PATH_BYTES,
  parseRequest,
  type SandboxRef,
  type TunnelFile,
  type TunnelRequest,
} from './requests';
export {
  type Serve,
  startTunnelServer,
  type TunnelServer,
  type TunnelServerOptions,
} from './server';
export type { TunnelStream } from './stream';
