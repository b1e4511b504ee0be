/** The session list cannot be read or is being built: nothing else is affected. */
export class IndexUnavailable extends Error {
  readonly code = 'index_unavailable';
  constructor(reason: string, options?: ErrorOptions) {
    super(`the session list is not available (${reason}): ask again shortly`, options);
    this.name = 'IndexUnavailable';
  }
}
