/** Nobody took the request: it was not sent, or no process listens there. Nothing happened; try later. */
export class BusUnavailable extends Error {
  readonly code = 'bus_unavailable';
  constructor(
    readonly subject: string,
    reason: string,
    options?: ErrorOptions,
  ) {
    super(`nobody answers ${subject} (${reason}): nothing was done, try again shortly`, options);
    this.name = 'BusUnavailable';
  }
}

/** The request was sent and no answer came: it may have been carried out. Repeat it with the same key. */
export class BusTimeout extends Error {
  readonly code = 'bus_timeout';
  constructor(
    readonly subject: string,
    readonly timeoutMs: number,
    options?: ErrorOptions,
  ) {
    super(
      `${subject} did not answer within ${timeoutMs} ms: repeat it with the same key to learn the outcome`,
      options,
    );
    this.name = 'BusTimeout';
  }
}

/** What came over the bus is not what the subject carries. */
export class MalformedMessage extends Error {
  readonly code = 'malformed_message';
  constructor(detail: string, options?: ErrorOptions) {
    super(`malformed message: ${detail}`, options);
    this.name = 'MalformedMessage';
  }
}
