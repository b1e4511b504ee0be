/**
 * The fields that the emulator reads and writes, named as the SDK names them. What is not listed is
 * ignored on the way in and left at its default on the way out.
 */
export interface Tag {
  readonly tagName: string;
  readonly tagValue: string;
}

export interface SandboxDefinition {
  readonly entrypointArgs: readonly string[];
  readonly imageId: string;
  readonly timeoutSecs: number;
  readonly workdir?: string;
  readonly name?: string;
  readonly resources?: {
    readonly memoryMb: number;
    readonly memoryMbMax: number;
    readonly milliCpu: number;
    readonly gpuConfig?: { readonly gpuType: string; readonly count: number };
  };
}

export interface SnapshotRequest {
  readonly taskId: string;
  /** The same for every repeat of one call. */
  readonly snapshotId: string;
  /** 0: for ever. */
  readonly ttlSeconds: number;
}

export interface CreateRequest {
  readonly appId: string;
  readonly definition?: SandboxDefinition;
  readonly tags: readonly Tag[];
}

/** `GenericResult.GenericStatus`. */
export const STATUS = {
  success: 1,
  failure: 2,
  terminated: 3,
  timeout: 4,
  initFailure: 5,
  internalFailure: 6,
  idleTimeout: 7,
  eviction: 8,
} as const;
export type StatusNumber = (typeof STATUS)[keyof typeof STATUS];

export interface Result {
  readonly status: StatusNumber;
  readonly exitcode: number;
  readonly exception: string;
}
