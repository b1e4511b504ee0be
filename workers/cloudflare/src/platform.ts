/** The parts of the Workers runtime that this Worker uses. */

export interface ObjectStorage {
  get<T>(key: string): Promise<T | undefined>;
  put<T>(key: string, value: T): Promise<void>;
  delete(key: string): Promise<boolean>;
  readonly sql: {
    exec<Row extends Record<string, string | number | null>>(
      query: string,
      ...bindings: readonly (string | number | null)[]
    ): { toArray(): Row[]; readonly rowsWritten: number };
  };
}

export interface ContainerHandle {
  readonly running: boolean;
  destroy(): Promise<void>;
  getTcpPort(port: number): { fetch(url: string | Request, init?: RequestInit): Promise<Response> };
}

export interface ObjectState {
  readonly id: { toString(): string };
  readonly storage: ObjectStorage;
  readonly container?: ContainerHandle;
  waitUntil(work: Promise<unknown>): void;
  blockConcurrencyWhile<T>(work: () => Promise<T>): Promise<T>;
  abort(reason?: string): void;
}

export interface ObjectNamespace<Stub> {
  idFromName(name: string): { toString(): string };
  get(id: { toString(): string }): Stub & { fetch(request: Request): Promise<Response> };
}

export interface UploadedPart {
  readonly partNumber: number;
  readonly etag: string;
}

export interface Bucket {
  get(key: string): Promise<{ readonly body: ReadableStream; text(): Promise<string> } | null>;
  put(key: string, value: string): Promise<unknown>;
  delete(keys: string[]): Promise<void>;
  list(options: { prefix: string; cursor?: string }): Promise<{
    readonly objects: readonly { readonly key: string }[];
    readonly truncated: boolean;
    readonly cursor?: string;
  }>;
  createMultipartUpload(key: string): Promise<{
    uploadPart(partNumber: number, value: Uint8Array): Promise<UploadedPart>;
    complete(parts: readonly UploadedPart[]): Promise<unknown>;
    abort(): Promise<void>;
  }>;
}

export interface ExecutionContext {
  waitUntil(work: Promise<unknown>): void;
}
