/** What vmux itself ends with. Everything else is the exit code of what was run. */
export const exitCodes = {
  failed: 1,
  usage: 2,
  timedOut: 124,
  /** Reserved: nobody can tell how the command ended. */
  outcomeUnknown: 125,
  notFound: 127,
  interrupted: 130,
} as const;

/** A message for the person at the terminal, who can do something about it. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly hint: string | null = null,
    readonly exitCode: number = exitCodes.failed,
  ) {
    super(message);
  }
}

/** The command line is not one that we know. */
export class UsageError extends Failure {
  constructor(message: string, hint: string | null = null) {
    super(message, hint, exitCodes.usage);
  }
}
