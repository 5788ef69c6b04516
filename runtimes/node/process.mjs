/**
 * What a handler can do to the process it runs in: end it, or let an exception escape. Page: runtimes/node.
 */

import { currentCall } from './capture.mjs'
import { Call } from './call.mjs'
import { toFailure } from './failure.mjs'

/**
 * Ends the process without running anything of the user's.
 * @type {(code: number) => never}
 */
export const exitNow = /** @type {any} */ (process).reallyExit.bind(process)

/** @param {() => void} leave - says what is left to say and hangs up at once */
export function watchProcess(leave) {
  const exitProperly = process.exit.bind(process)
  process.on('uncaughtException', error => {
    process.stderr.write(`uncaught exception: ${toText(error)}\n`)
    failCurrentCall(error)
    // Its state is unknown from here on.
    leave()
    exitNow(1)
  })
  process.on('unhandledRejection', reason => {
    process.stderr.write(`unhandled rejection: ${toText(reason)}\n`)
  })
  process.exit = /** @type {typeof process.exit} */ (
    code => {
      failCurrentCall(new Error(`handler ended the process with exit code ${code ?? process.exitCode ?? 0}`))
      leave()
      return exitProperly(code)
    }
  )
}

/** @param {unknown} error - of the call that ends the worker */
function failCurrentCall(error) {
  const call = currentCall.getStore()
  if (call instanceof Call) call.fail(error, true)
}

/** @param {unknown} error */
function toText(error) {
  const { message, stack } = toFailure('exception', error)
  return stack || message
}
