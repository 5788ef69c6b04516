/** Wrong use of the command line: one message, exit code 2. Owner: §1, page bin/dev. */
export class UsageError extends Error {
  readonly exitCode: number = 2
}

/** A command that cannot do its work: one message, exit code 1. */
export class CommandError extends Error {
  readonly exitCode: number
  constructor(message: string, exitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}
